"""TensorFlow's oneDNN kernels on every x86 CPU, before TensorFlow is imported.

TensorFlow 2.21 turns them on by itself only where there are instructions for neural networks (AVX512-VNNI and later).
With AVX2 alone they made steps of short texts 1.10 times as fast (`benchmarks/results/2026-11-22-allocator.md`).
"""

from __future__ import annotations

import os
import platform


def use_onednn() -> None:
    """Turns them on for this process and its child processes; `TF_ENABLE_ONEDNN_OPTS` in the environment wins."""
    if platform.machine() in ("x86_64", "AMD64"):
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
