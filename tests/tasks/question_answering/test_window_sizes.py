"""Windows that suit the length of rows: what is chosen, what is refused, and what is said about it."""

import pytest

import tfbert
from tests.support.refusals import refused
from tests.support.served import random_model, save
from tfbert import AnsweringConfig, Config, DataConfig
from tfbert.config.tasks import window_sizes
from tfbert.tasks.question_answering.question_answering import QuestionAnswering


def resolved(length, **options):
    data = DataConfig(task="question_answering", max_seq_length=length)
    return Config(data=data, answering=AnsweringConfig(**options)).resolved().answering


STRIDES = {None: 128, 512: 128, 384: 128, 256: 94, 192: 62, 128: 30, 96: 22, 64: 14, 24: 4, 8: 1}
LONGEST = {None: 64, 512: 64, 384: 64, 256: 64, 192: 64, 128: 64, 96: 48, 64: 32, 24: 12, 8: 4}


@pytest.mark.parametrize(("length", "stride"), STRIDES.items())
def test_defaults_suit_the_length(length, stride):
    """With none they are as published, for 384."""
    found, most = resolved(length), LONGEST[length]
    assert (found.doc_stride, found.max_query_length) == (stride, most)
    assert 1 <= stride <= (length or 384) - 3 - most, "a question of any length leaves room, and no token is skipped"


def test_what_is_asked_for_stays():
    assert resolved(192, doc_stride=128).doc_stride == 128
    found = resolved(24, max_query_length=5)
    assert (found.doc_stride, found.max_query_length) == (8, 5)
    assert window_sizes(64, 9, 60) == (9, 60)


TOO_LARGE = [
    (128, "doc_stride", 128, 124, {}),
    (24, "doc_stride", 21, 20, {"max_query_length": 4}),
    (64, "max_query_length", 64, 60, {}),
]


@pytest.mark.parametrize(("length", "name", "value", "most", "others"), TOO_LARGE)
def test_sizes_that_no_row_can_have_are_refused_before_data_is_read(length, name, value, most, others):
    with refused(f"{name} must be at most {most}: .* Received: max_seq_length={length}, {name}={value}"):
        resolved(length, **{name: value}, **others)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Models as older versions saved them: rows of 32 tokens with the stride of 128 that did not go with them."""
    directory = tmp_path_factory.mktemp("models")
    for name, stride, most in (("old", 128, 64), ("wide", 24, 16)):
        task = QuestionAnswering(AnsweringConfig(doc_stride=stride, max_query_length=most))
        save(random_model(task, num_texts=2, max_seq_length=32), directory / name)
    return directory


def asked(*lengths):
    context = "the quick brown fox jumped over a movie . " * 30
    return [{"id": i, "question": "fox " * n, "context": context} for i, n in enumerate(lengths)]


def test_an_older_model_answers_contexts_longer_than_its_rows(runs, caplog):
    """As with the sizes that suit its rows, and says so."""
    caplog.set_level("INFO")
    questions = asked(1, 5, 40)
    found = tfbert.load(runs / "old")(questions)
    assert "Windows are 6 tokens apart: the 128 that the model was trained with" in caplog.text
    assert "Questions are cut to 16 tokens: the 64 that the model was trained with" in caplog.text
    again = tfbert.load(runs / "old", answering=AnsweringConfig(doc_stride=6, max_query_length=16))(questions)
    assert found == again and all(answer["answer"] for answer in found)
    # Another stride finds other answers: the comparison says something.
    assert tfbert.load(runs / "old", answering=AnsweringConfig(doc_stride=1))(questions) != found


def test_windows_that_may_not_overlap_are_said_to(runs, caplog):
    caplog.set_level("INFO")
    line = "Windows 24 tokens apart do not overlap for questions of more than 5 tokens"
    (answer,) = tfbert.load(runs / "wide")(asked(12))
    assert answer["answer"] and line in caplog.text


@pytest.mark.parametrize("size", ["doc_stride", "max_query_length"])
def test_sizes_that_no_row_can_have_are_refused_when_a_model_is_loaded(runs, size):
    for length, value in ((None, 29), (20, 17)):
        with refused(rf"Received: .*{size}={value}.*\. Pass a "):
            tfbert.load(runs / "old", max_seq_length=length, answering=AnsweringConfig(**{size: value}))
