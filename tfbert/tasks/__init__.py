"""Tasks: how each one treats rows, outputs and predictions."""
