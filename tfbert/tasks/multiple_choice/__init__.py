"""One of several choices for each question: `--task=multiple_choice`."""
