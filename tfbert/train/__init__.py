"""A training run: open, build, train, finish."""
