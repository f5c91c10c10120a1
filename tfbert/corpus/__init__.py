"""A corpus -> records for pre-training."""
