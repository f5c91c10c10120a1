"""What a saved model is used for: one verb a file."""
