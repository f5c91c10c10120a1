"""Examples of text tasks that have labels."""

from tfbert.tasks.text_task import TextExamples


def labelled(labels, texts=None, text_pairs=None):
    """Texts with these labels; the texts are empty where none are given."""
    return TextExamples(name="labelled", text=texts or [""] * len(labels), text_pair=text_pairs, labels=labels)
