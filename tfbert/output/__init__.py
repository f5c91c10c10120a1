"""The output directory, what is written there and how, and the hub."""
