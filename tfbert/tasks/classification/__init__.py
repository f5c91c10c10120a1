"""Classification and regression: one label or number for each text or pair of texts."""
