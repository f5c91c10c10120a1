"""Pre-training: masked words, and whether two segments follow each other."""
