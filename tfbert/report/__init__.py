"""What people read after a run: `report.html` of one run, and the comparison of several.

tfbert report RUN_DIR            rewrites RUN_DIR/report.html
tfbert report RUN_DIR RUN_DIR    writes comparison.html and comparison.md, and prints the table

`python -m tfbert.report` is the same.
"""
