"""Files of predictions: whole or not there, whatever happens to the disk, to standard output and to its reader."""

import contextlib
import csv
import io
import resource
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest

import run_finetune
from tests.support.processes import ROOT
from tests.support.refusals import refused
from tests.support.saved_models import model_with
from tfbert import Config, ModelConfig, PredictConfig, RunError, UsageError
from tfbert import commandline as command
from tfbert.errors import ReaderGone
from tfbert.tasks.classification import glue
from tfbert.tasks.classification.glue import open_texts
from tfbert.tasks.prediction import FORMATS, Item, write_predictions
from tfbert.tasks.text_task import TextItems

LOGITS = np.float32([[1, 2], [2, 1]])


@contextlib.contextmanager
def disk_with_room_for(size):
    """No file can grow beyond so many bytes: writing fails with an OSError, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def write(path, ids, logits=LOGITS, names=("a", "b")):
    """Writes predictions, logits `[n, classes]` or one pair again and again, for these ids; an error among these is
    raised in their place."""
    items = TextItems(model_with(names))

    def answered():
        for number, name in enumerate(ids):
            if isinstance(name, Exception):
                raise name
            (record,) = items.records((), logits[[number % len(logits)]])
            yield Item(name=name, texts=()), record

    name = "-.tsv" if path is None else path.name
    if name == "glue.tsv":
        lines = glue.submission(glue.TASKS["rte"], items)(answered())
    else:
        lines = FORMATS[name.removesuffix(".gz").rpartition(".")[2]](items, answered())
    write_predictions(path, lines)


@pytest.mark.parametrize("name", ["out.tsv", "out.jsonl", "out.tsv.gz", "glue.tsv"])
@pytest.mark.parametrize("rows", [1, 700], ids=["found when it is closed", "found on the way"])
def test_a_full_disk_is_an_error_and_leaves_no_file(tmp_path, name, rows):
    numbers = np.random.default_rng(0).integers(1 << 60, size=2 * rows)  # Which gzip cannot make small.
    with disk_with_room_for(9), pytest.raises(RunError, match=r"must be writable. Received: '.*\(File too large\)"):
        write(tmp_path / name, map(int, numbers), names=("entailment", "not_entailment"))
    assert not list(tmp_path.iterdir())


def test_a_full_disk_does_not_hide_what_went_wrong_before(tmp_path):
    with disk_with_room_for(9), refused("line 7"):
        write(tmp_path / "out.tsv", [1, 2, UsageError("line 7")])
    assert not list(tmp_path.iterdir())


def test_what_a_killed_run_left_is_replaced_and_no_link_is_followed(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / ".out.tsv.partial").symlink_to(tmp_path / "precious")
    write(tmp_path / "out.tsv", [1, 2])
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "out.tsv").read_text().splitlines()[1].startswith("1\tb\t")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.tsv", "precious"]


def test_labels_and_ids_keep_to_their_column_and_stay_apart(tmp_path):
    names = ["<script>|", "a\tb", "a b", "a\r\nb"]
    logits = np.float32([[0, 9, 0, 0], [0, 0, 0, 9], [9, 0, 0, 0]])
    write(tmp_path / "out.tsv", ["x\ty", 'quote"', "z\n"], logits, names)
    header, *rows = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().split("\n")[:-1]]
    shown = ["<script>|", r"a\tb", "a b", r"a\r\nb"]
    assert header == ["id", "label", *(f"probability_{name}" for name in shown)]
    assert [row[:2] for row in rows] == [[r"x\ty", shown[1]], ['quote"', shown[3]], [r"z\n", shown[0]]]
    assert {len(row) for row in rows} == {6}


def test_a_csv_holds_what_a_tsv_cannot(tmp_path):
    names, ids = ("a,b", 'say "a"\r\nb', "plain"), ["x\ty", "line\nend", ""]
    write(tmp_path / "out.csv", ids, np.float32([[0, 9, 0], [9, 0, 0], [0, 0, 9]]), names)
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file, strict=True)
    assert header == ["id", "label", *(f"probability_{name}" for name in names)]
    assert [row[:2] for row in rows] == [[ids[0], names[1]], [ids[1], names[0]], [ids[2], names[2]]]
    assert [max(map(float, row[2:])) for row in rows] == pytest.approx([0.99975] * 3, abs=1e-5)
    assert (tmp_path / "out.csv").read_bytes().count(b"\r") == 2, "of a label in the heading and in a row"


def sources(**options):
    asked = PredictConfig(**options)
    return open_texts(Config(mode="predict", model=ModelConfig(model_name_or_path="m"), predict=asked))


def test_standard_streams_that_are_closed_are_named_before_anything_is_loaded(tmp_path, monkeypatch):
    (tmp_path / "in.txt").write_text("good\n")
    monkeypatch.setattr(sys, "stdin", None)  # As Python has it where the shell was told <&-.
    with refused("Received: input_file='-' with standard input closed"):
        sources(input_file="-")
    monkeypatch.setattr(sys, "stdout", None)
    with refused("Received: output_file='-' with it closed"):
        sources(input_file=str(tmp_path / "in.txt"))
    assert sources(input_file=str(tmp_path / "in.txt"), output_file=str(tmp_path / "out.tsv"))


class Full(io.StringIO):
    """A standard output that is written to a full disk."""

    def flush(self):
        raise OSError(28, "No space left on device")


def test_standard_output_that_is_full_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(RunError, match=r"Received: standard output \(No space left on device\)"):
        write(None, [1, 2])


UNREAD = """
import sys
from tfbert.devices.process import stderr_held_back
from tfbert.errors import ReaderGone
with stderr_held_back():  # As the command does while it imports TensorFlow.
    from tfbert.tasks.prediction import write_predictions
try:
    write_predictions(None, (f"{row}\\tb" for row in range(100_000)))
except ReaderGone:
    sys.exit(141)
"""


@pytest.mark.slow
def test_a_reader_that_wants_no_more_ends_a_process_in_silence():
    command = ["bash", "-o", "pipefail", "-c", '"$0" -c "$1" | head -2', sys.executable, UNREAD]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert (done.returncode, done.stderr) == (141, "")
    assert [line.split("\t") for line in done.stdout.splitlines()] == [["0", "b"], ["1", "b"]]


def test_a_reader_that_wants_no_more_ends_the_command_in_silence(monkeypatch, capfd):
    monkeypatch.setattr(command, "parse", mock.create_autospec(command.parse, side_effect=ReaderGone))
    assert run_finetune.main() == 141
    assert capfd.readouterr() == ("", "")
