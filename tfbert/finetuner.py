"""For models saved with `FineTuner.save("x.keras")`: their files name the class as `tfbert.finetuner.FineTuner`."""

from tfbert.step.finetuner import FineTuner

__all__ = ["FineTuner"]
