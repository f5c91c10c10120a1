"""Callbacks for whole runs, as `tfbert.finetune(callbacks=[...])` takes them."""

from tfbert.output.callback import Callback, MlflowCallback, RunInfo, TensorBoardCallback, WandbCallback

__all__ = ["Callback", "MlflowCallback", "RunInfo", "TensorBoardCallback", "WandbCallback"]
