"""What each task reads, computes and answers: a folder each, from its files to its predictions."""
