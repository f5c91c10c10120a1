"""What more devices would give: the formula, the page about it, and the predictions of a benchmark."""

import json
import pathlib
import re
import shlex
import sys

import numpy as np
import pytest

from tests.support.models import strategy_of
from tfbert.config.run import Config
from tfbert.measure.scaling import Network, all_reduce_seconds, ring_bytes_per_second, ring_seconds
from tfbert.modes.benchmark import pages
from tfbert.modes.benchmark import row as row_process
from tfbert.modes.benchmark.measured import compared
from tfbert.modes.benchmark.prediction import growth, one_replica

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))


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
    import scaling

    assert scaling.main(words) == expected.strip()


def test_the_page_has_commands():
    assert len(pages_commands()) == (ROOT / "docs" / "scaling.md").read_text().count("    python benchmarks/scaling.py")
    assert len(pages_commands()) > 3


@pytest.mark.parametrize("size", ["base", "large"])
def test_the_page_has_hours_and_cost_of_both_sizes_on_1_to_256_gpus(size):
    tables = [expected.splitlines() for words, expected in pages_commands() if f"--size={size}" in words]
    found = [lines for lines in tables if "| hours | cost |" in lines[0] and lines[-1].startswith("| 256 |")]
    assert any([line.split()[1] for line in lines[2:]] == [str(2**i) for i in range(9)] for lines in found)


@pytest.mark.parametrize("size, millions", [("base", 109.5), ("large", 335.1)])
def test_sizes_are_berts(size, millions):
    import scaling

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
    import scaling

    with pytest.raises(SystemExit) as error:
        scaling.main(["--examples_per_second=1", *words.split()])
    assert error.value.code == 2 and message in capsys.readouterr().err


def numbers(row, workers, batch, speed, *, replicas=1, devices="CPU", all_reduce_ms=None, **more):
    row = {"row": row, "pass": "training", "status": "done", "workers": workers, "replicas": replicas} | more
    row |= {"batch_size": batch, "micro_batches": 1, "examples_per_second": speed, "gradient_bytes": 1000}
    row |= {"seq_length": 128, "batching": "padded", "devices": f"{workers} on {devices}", "step_ms_p50": 1.0}
    row = {"precision": "float32", "xla": False} | row
    return row | ({} if all_reduce_ms is None else {"all_reduce_ms": all_reduce_ms})


def test_gpus_divide_the_arithmetic_and_cpu_replicas_share_it():
    one = numbers(1, 1, 32, 100.0)
    for devices, seconds in (("GPU", 0.16 + 0.04), ("CPU", 0.32 + 0.04)):
        two = numbers(2, 2, 32, 60.0, devices=devices, all_reduce_ms=40.0)
        _, row = compared([one, two])
        assert row["predicted_examples_per_second"] == pytest.approx(32 / seconds, abs=0.01)
    assert "predicted_examples_per_second" not in compared([one, two])[0], "one replica predicts, and is not predicted"


def test_the_most_similar_row_of_one_replica_predicts():
    rows = [
        numbers(1, 1, 8, 10.0),
        numbers(2, 1, 16, 20.0),
        numbers(3, 1, 16, 30.0, precision="float16"),
        numbers(4, 1, 16, 40.0) | {"status": "failed"},
        numbers(5, 2, 32, 50.0, all_reduce_ms=1.0),
    ]
    assert one_replica(rows[4], rows)["row"] == 2, "16 examples at a time"
    assert one_replica(numbers(6, 2, 32, 50.0, all_reduce_ms=1.0, xla=True), rows) is None
    assert compared(rows[2:])[2].get("predicted_examples_per_second") is None


def test_growth_has_the_links_that_were_measured():
    one, two = numbers(1, 1, 16, 100.0), numbers(2, 1, 32, 150.0, replicas=2, devices="GPU", all_reduce_ms=40.0)
    found = growth(two, one)
    assert found[0] == (1, 16, pytest.approx(100), 1.0)
    # 1,000 bytes over two links in 40 ms are 25,000 bytes a second.
    assert found[1] == (2, 32, pytest.approx(32 / (0.16 + 0.04)), pytest.approx(0.8))
    assert found[2][2] == pytest.approx(64 / (0.16 + 0.06))
    assert found[-1][0] == 256 and found[-1][3] == pytest.approx(0.16 / (0.16 + 2 * 255 / 256 * 1000 / 25000))


def test_both_pages_show_predictions_where_there_are_any():
    config = Config(mode="benchmark")
    cpus = compared([numbers(1, 1, 16, 100.0), numbers(2, 2, 32, 150.0, all_reduce_ms=40.0)])
    assert "predicted examples/s" in pages.markdown(config, cpus) and "on paper" not in pages.markdown(config, cpus)
    rows = compared([numbers(1, 1, 16, 100.0), numbers(2, 2, 32, 150.0, devices="GPU", all_reduce_ms=40.0)])
    assert pages.row_text(rows[1]).startswith("150.0 examples/s (predicted ")
    assert pages.row_text(rows[0]).startswith("100.0 examples/s, step")
    for text in (pages.markdown(config, rows), pages.page(config, rows, {})):
        assert "More GPUs, on paper" in text and "predicted examples/s" in text
        assert "row 1" in text and "256" in text
    assert "on paper" not in pages.markdown(config, rows[:1])


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_a_row_times_the_sum_over_its_replicas(num_replicas, tmp_path, monkeypatch):
    sums = []
    from tfbert.step import gradients

    def counted(tensors, real=gradients.all_reduce_sum):
        sums.append(sum(int(np.prod(tensor.shape)) for tensor in tensors))
        return real(tensors)

    monkeypatch.setattr(gradients, "all_reduce_sum", counted)
    strategy = strategy_of(num_replicas)
    results = {"gradient_bytes": 9 * 2**20}
    monkeypatch.setattr("tfbert.train.run.finetune", lambda config, at_end: at_end(strategy, results))
    monkeypatch.setattr(row_process, "measure_peak", lambda config: 1e12)
    (tmp_path / "run.json").write_text(Config().to_json())
    assert row_process.main([str(tmp_path / "run.json"), str(tmp_path / "row.json")]) == 0
    seconds = json.loads((tmp_path / "row.json").read_text())["all_reduce_seconds"]
    assert (seconds is None) == (num_replicas == 1)
    assert num_replicas == 1 or (seconds > 0 and sums and all(size == 9 * 2**18 for size in sums))
