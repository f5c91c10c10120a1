"""Question answering: a span of a context for each question."""
