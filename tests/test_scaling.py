"""What more devices would give: the formula, the time of an all-reduce, and the page about it."""

import re
import shlex

import numpy as np
import peaks
import pytest
import scaling
from ring import Network, all_reduce_seconds, ring_bytes_per_second, ring_seconds

from tests.support.models import strategy_of
from tests.support.processes import ROOT
from tfbert.step import gradients


def sent_in_a_ring(num_bytes, num_links):
    """Bytes over the busiest link: each of n parts goes n - 1 times on to be summed, and n - 1 times to be known."""
    return sum(num_bytes / num_links for _ in range(num_links - 1)) * 2


@pytest.mark.parametrize("num_links", [1, 2, 3, 8])
def test_a_ring_sends_each_part_around_twice(num_links):
    seconds = ring_seconds(1000, num_links, 10.0)
    assert seconds == pytest.approx(sent_in_a_ring(1000, num_links) / 10)
    if num_links > 1:
        assert ring_bytes_per_second(1000, num_links, seconds) == pytest.approx(10)


def test_machines_are_reduced_over_inside_and_between():
    network = Network(devices_per_node=4, intra_node=100.0, inter_node=10.0)
    assert all_reduce_seconds(1000, 1, network) == 0
    assert all_reduce_seconds(1000, 2, network) == pytest.approx(10)
    assert all_reduce_seconds(1000, 8, network) == pytest.approx(15 + 100)
    with pytest.raises(ValueError, match="num_devices=6, devices_per_node=4"):
        all_reduce_seconds(1000, 6, network)


def pages_commands():
    text = (ROOT / "docs" / "scaling.md").read_text()
    found = re.findall(r"^    (python benchmarks/scaling(?:.*\\\n)*.*)\n\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [(shlex.split(command.replace("\\\n", " "))[2:], expected) for command, expected in found]


@pytest.mark.parametrize("words, expected", pages_commands())
def test_the_pages_tables_are_those_of_its_commands(words, expected):
    assert scaling.main(words) == expected.strip()


def test_the_page_has_commands():
    text = (ROOT / "docs" / "scaling.md").read_text()
    assert text.count("    python benchmarks/scaling.py") == len(pages_commands()) > 3


@pytest.mark.parametrize("size, millions", [("base", 109.5), ("large", 335.1)])
def test_sizes_are_berts(size, millions):
    assert scaling.num_parameters(size) / 1e6 == pytest.approx(millions, abs=0.05)


@pytest.mark.parametrize(
    "words, message",
    [
        ("--global_batch_size=10 --gpus=4", "Received: global_batch_size=10 for 4 GPUs."),
        ("--gpus=12", "Received: 12 with gpus_per_node=8."),
        ("--gpus=0", "Received: '0'."),
        ("--gpus=a", "--gpus"),
        ("--intra_node=nan", "Received: intra_node=nan."),
        ("--examples=-1", "Received: examples=-1.0."),
        ("--price=2", "Received: price=2.0. Add --examples."),
        ("--examples_per_gpu=2 --global_batch_size=4", "Received: examples_per_gpu=2 and global_batch_size=4."),
    ],
)
def test_what_cannot_be_is_refused(words, message, capsys):
    with pytest.raises(SystemExit) as error:
        scaling.main(["--examples_per_second=1", *words.split()])
    assert error.value.code == 2 and message in capsys.readouterr().err


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_the_sum_over_replicas_is_timed(num_replicas, monkeypatch):
    sums = []

    def counted(tensors, real=gradients.all_reduce_sum):
        sums.append(sum(int(np.prod(tensor.shape)) for tensor in tensors))
        return real(tensors)

    monkeypatch.setattr(gradients, "all_reduce_sum", counted)
    seconds = peaks.measure_all_reduce(strategy_of(num_replicas), 9 * 2**20)
    assert (seconds is None) == (num_replicas == 1)
    assert num_replicas == 1 or (seconds > 0 and sums and all(size == 9 * 2**18 for size in sums))
