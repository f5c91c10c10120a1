"""Progress of long passes: how fast, how much time is left, and nothing about what takes no time."""

import contextlib
import io
import types

import pytest

from tests.support.corpora import made_up_corpus
from tfbert.corpus.sources import file_digests
from tfbert.corpus.vocabulary import learn_vocab
from tfbert.output import logs
from tfbert.output.logs import PassProgress, evaluating


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until its `now` is changed."""
    clock = types.SimpleNamespace(now=0.0)
    clock.perf_counter = lambda: clock.now
    monkeypatch.setattr(logs, "time", clock)
    return clock


def test_a_log_has_lines_now_and_then_and_one_at_the_end(clock, logged):
    with PassProgress("hashing", 400, "MB") as passing:
        for clock.now in (4, 9, 12, 19, 24):
            passing.advance(40, 1000)
        clock.now = 60
    assert logged() == [
        "hashing: 30%, 250 MB/s, 0:28 left",
        "hashing: 50%, 208 MB/s, 0:24 left",
        "hashing: 5,000 MB in 1:00, 83 MB/s",
    ]


def test_no_time_left_is_made_up_before_any_work_is_done(clock, logged):
    with PassProgress("reading", 400) as passing:
        clock.now = 20
        passing.advance(0, 1000)
    assert logged()[0] == "reading: 0%, 50 sentences/s"


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_nothing_is_said_of_a_short_pass(stream, clock, logged, monkeypatch):
    stream = stream()
    monkeypatch.setattr("sys.stderr", stream)
    with PassProgress("hashing", 2) as passing:
        for clock.now in (1, 1.9):
            passing.advance(1, 1)
    assert logged() == [] and stream.getvalue() == ""


def test_a_failed_pass_is_not_said_to_be_done(clock, logged):
    with pytest.raises(ValueError), PassProgress("hashing", 2):
        clock.now = 60
        raise ValueError
    assert logged() == []


def test_a_terminal_has_a_bar(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(logs, "SECONDS_WITHOUT_NEWS", 0)
    with PassProgress("hashing", 2, "MB") as passing:
        passing.advance(1, 1)
        passing.advance(1, 1)
    assert "hashing: 100%" in stream.getvalue() and "MB/s" in stream.getvalue()


def test_an_evaluation_leaves_nothing_behind(clock, logged, monkeypatch):
    with evaluating(100, "data/dev.tsv") as on_rows:
        for clock.now in (5, 12, 20):
            on_rows(25)
    assert logged() == ["evaluating dev.tsv: 50%, 4.2 rows/s, 0:12 left"]
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(logs, "SECONDS_WITHOUT_NEWS", 0)
    with evaluating(100, "test") as on_rows:
        on_rows(50)
    shown = stream.getvalue()
    assert "evaluating test: " in shown and shown.endswith(" \r") and not shown.split("\r")[-2].strip()


@pytest.fixture
def talkative(monkeypatch):
    """Every step of every pass is logged."""
    monkeypatch.setattr(logs, "_SECONDS_BETWEEN_LINES", 0)
    monkeypatch.setattr(logs, "SECONDS_WITHOUT_NEWS", 0)


def test_hashing_a_corpus_says_how_far_it_is(tmp_path, talkative, logged, monkeypatch):
    monkeypatch.setattr("tfbert.corpus.sources._PIECE", 10)
    sizes = {"a": 25, "b": 0, "c": 15}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(b"x" * size)
    file_digests([str(tmp_path / name) for name in sizes])
    shares = [line.split(",")[0] for line in logged()]
    assert shares[:-1] == [f"hashing the corpus: {share}%" for share in (25, 50, 62, 88, 100)]


def test_learning_a_vocabulary_says_what_is_done(talkative, logged, monkeypatch):
    said = "tfbert.tokens.vocabulary.log_if_slow"
    monkeypatch.setattr(said, lambda what: contextlib.nullcontext(logs.log.info("%s ...", what)))
    corpus = made_up_corpus(num_documents=6, num_parts=2)
    learn_vocab(corpus, 100, seed=0)
    lines = logged()
    counts = {len(document) for part in corpus.parts() for document in corpus.read(part)}
    assert len(counts) > 1
    assert [line.split(":")[0] for line in lines] == [
        *["reading a sample"] * 9,  # Six documents, the ends of two parts, and all of it.
        "learning a vocabulary of 100 tokens from 6 documents",
        *["normalizing the sample"] * 7,
        *["counting the words of the sample"] * 7,
        "merging characters into 100 tokens ...",
    ]
    shares = [int(line.split(": ")[1].split("%")[0]) for line in lines if line.startswith("reading") and "%" in line]
    assert shares[:3] == [0, 0, 0] and shares[-1] == 100 and shares == sorted(shares)
