"""Prediction of several labels: texts of a file, and where the predictions go."""

from __future__ import annotations

from tfbert.config.run import Config
from tfbert.errors import UsageError
from tfbert.tasks.prediction_texts import TextJob, open_text_file, text_job


def open_texts(config: Config) -> list[TextJob]:
    """The texts to predict, and where the predictions go.

    Raises:
        UsageError: for input that cannot be opened, columns that do not exist, output without a known ending,
            standard input or output that is closed, or one of GLUE's tasks.
    """
    if config.data.dataset or config.predict.glue_task:
        asked = f"dataset={config.data.dataset!r}, glue_task={config.predict.glue_task!r}"
        raise UsageError(
            "GLUE's tasks have one label for each text. "
            f"Received: {asked} with a model that gives several. Pass --input_file and --output_file."
        )
    return [text_job(config, open_text_file(config))]
