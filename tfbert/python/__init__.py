"""Training from Python: the command's options as arguments, and what it shows, in a script or a notebook."""
