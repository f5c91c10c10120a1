"""Examples as token ids -> the batches of a run, the same ones however it is split."""
