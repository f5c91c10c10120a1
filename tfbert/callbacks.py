"""Callbacks for whole runs, as `tfbert.finetune(callbacks=[...])` takes them."""

from tfbert.output.logs import Callback, MlflowCallback, RunInfo, TensorBoardCallback, WandbCallback

__all__ = ["Callback", "MlflowCallback", "RunInfo", "TensorBoardCallback", "WandbCallback"]
