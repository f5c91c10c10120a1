"""A corpus -> records to pre-train on."""
