"""What people read after a run: `report.html` of one run, and the comparison of several. Needs no TensorFlow.

python -m tfbert.report RUN_DIR            writes RUN_DIR/report.html anew
python -m tfbert.report RUN_DIR RUN_DIR    writes comparison.html and comparison.md, and prints the table
"""
