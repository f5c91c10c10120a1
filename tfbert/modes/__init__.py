"""What a saved model is used for, and `benchmark`: one verb a file."""
