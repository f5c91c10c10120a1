"""From text to batches: sources, tokenizer, plan, pipeline."""
