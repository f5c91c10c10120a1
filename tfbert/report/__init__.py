"""What people read after a run: `report.html` of one run, and the comparison of several. Needs no TensorFlow.

tfbert report RUN_DIR            writes RUN_DIR/report.html anew
tfbert report RUN_DIR RUN_DIR    writes comparison.html and comparison.md, and prints the table

`python -m tfbert.report` is the same.
"""
