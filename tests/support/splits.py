"""The ways of splitting a run that must give the same weights, as flags, and how nearly the same."""

import subprocess
import sys

import numpy as np

from tests.support.processes import ROOT
from tests.support.runs import weights

DEVICES = {
    "one_device": ["--strategy=one_device"],
    "mirrored": ["--strategy=mirrored", "--num_replicas=2"],
    "two_workers": ["--strategy=multi_worker"],
}
PRECISIONS = {
    "float32": [],
    "bfloat16": ["--mixed_precision", "--mixed_precision_dtype=bfloat16"],
    "float16": ["--mixed_precision", "--mixed_precision_dtype=float16"],
}


def split_flags(devices, micro_batches, precision, xla):
    """The flags of one way."""
    accumulation = f"--gradient_accumulation_steps={micro_batches}"
    return [accumulation, *DEVICES[devices], *PRECISIONS[precision], *["--xla"] * xla]


def alone(script, arguments):
    """Runs the command in a process of its own: TensorFlow keeps what XLA compiled, and dozens of runs would crash."""
    subprocess.run([sys.executable, script, *arguments], check=True, timeout=400, cwd=ROOT)


def launched(script, arguments):
    """Runs the command by `tfbert.launch` with two workers."""
    alone("-m", ["tfbert.launch", "--num_workers=2", "--", script, *arguments])


NO_GRADIENT = ("key.bias",)
"""How names end of variables whose gradient is 0 but for rounding, with any head: AdamW makes updates of that."""


def assert_same_update(start, one, split, precision, no_gradient=NO_GRADIENT):
    """Weights are those of the run in one piece: to 1e-5 in float32, as a whole in 16 bits.

    In float32 one weight of all may be 2e-5 off: by Adam a gradient near 0 moves a weight by what rounding made of it.
    With XLA and AVX-512 one of 13,730 was 1.8e-5 off (AVX2: 1.0e-5), and 99.9% of them at most 1e-7.

    Args:
        start: The weights that both runs began with.
        one: Those of the run in one piece.
        split: Those of the other.
        precision: Of both.
        no_gradient: How names end of variables that are not compared.
    """
    assert split.keys() == one.keys()
    num_off = 0
    for name, expected in one.items():
        if name.endswith(no_gradient):
            continue
        if precision == "float32":
            apart = np.abs(split[name] - expected)
            assert np.max(apart) <= 2e-5, name
            num_off += np.sum(apart > 1e-5)
        else:
            # AdamW turns a rounded gradient near 0 into a whole update: compare the updates as a whole.
            moved = np.abs(expected - start[name]).mean()
            assert np.abs(split[name] - expected).mean() <= 0.1 * moved + 1e-7, name
    assert num_off <= 1


def assert_as_nearly(directory, expected, limit=1e-5, without=(*NO_GRADIENT, "qa_outputs.bias")):
    """Weights equal to rounding, but for those whose gradient is 0 but for rounding; returns the largest difference."""
    found, expected = weights(directory), weights(expected)
    assert found.keys() == expected.keys()
    apart = {name: np.abs(found[name] - expected[name]).max() for name in expected if not name.endswith(without)}
    assert not {name: value for name, value in apart.items() if not value < limit}
    return max(apart.values())
