"""`FineTuner`: one optimizer update, correct however a batch is split. Needs no configuration."""
