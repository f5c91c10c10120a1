"""Text -> token ids."""
