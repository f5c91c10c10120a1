"""Examples as token ids -> the batches of a run, the same however it is split."""
