"""What a task makes of rows, outputs and predictions."""
