"""Callbacks for whole runs, as `tfbert.finetune(callbacks=[...])` takes them."""

from tfbert.output.callback import Callback, RunInfo
from tfbert.output.trackers import MlflowCallback, TensorBoardCallback, WandbCallback

__all__ = ["Callback", "MlflowCallback", "RunInfo", "TensorBoardCallback", "WandbCallback"]
