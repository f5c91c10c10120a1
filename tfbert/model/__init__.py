"""A model's files and weights -> BERT and its head; its forward pass; predictions over data."""
