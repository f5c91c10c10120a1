"""The n-best answers of windows, against a slow reading of the rules, pair by pair."""

import itertools
import json
import math
import resource

import numpy as np
import pytest

from tfbert.config.tasks import AnsweringConfig
from tfbert.tasks.question_answering import question_answering as answers_module
from tfbert.tasks.question_answering.question_answering import Candidates, QuestionAnswering, decode, probabilities
from tfbert.tasks.question_answering.squad import QuestionExamples


def windows_of(rows):
    """Windows, and the logits of their tokens. Each row: the question, where its context starts and ends, the two
    logits of each token, its first character and the one after its last, and whether it has most context here."""
    *places, logits, chars, is_max = zip(*rows, strict=True)
    parts = dict(zip(("example", "context_start", "context_end"), np.array(places, np.int32), strict=True))
    parts["char_start"], parts["char_end"] = np.concatenate(chars, axis=1).astype(np.int32)
    parts |= {"row_splits": np.cumsum([0, *map(len, is_max)]), "max_context": np.concatenate(is_max)}
    windows = answers_module.Windows(tokens=None, first_token=None, **parts)
    return windows, np.concatenate(logits, axis=1).T.astype(np.float32)


def random_windows(rng, num_questions, *, coarse):
    """Windows of random questions: 1 to 3 overlapping ones each, shuffled, some tokens sharing their characters."""
    rows = []
    for question in range(num_questions):
        length = int(rng.integers(1, 40))
        starts = 2 * np.sort(rng.integers(0, length, length))  # Some tokens share their characters.
        size = int(rng.integers(max(1, length // 2), length + 1))
        step = max(1, size // 2)
        spans = [(begin, min(begin + size, length)) for begin in range(0, max(length - size, 0) + step, step)]
        context_of_token = [
            [min(t - a, b - 1 - t) + 0.01 * (b - a) if a <= t < b else -1 for a, b in spans] for t in range(length)
        ]
        best = [int(np.argmax(scores)) for scores in context_of_token]
        before = int(rng.integers(2, 8))
        for number, (a, b) in enumerate(spans):
            end = before + (b - a)
            logits = rng.normal(size=(2, end + 1)).astype(np.float32)
            chars, is_max = np.zeros((2, end + 1), np.int32), np.zeros(end + 1, bool)
            chars[:, before:end] = starts[a:b], starts[a:b] + 2
            is_max[before:end] = [best[t] == number for t in range(a, b)]
            # Rounded, many scores are equal.
            rows.append((question, before, end, np.round(logits) if coarse else logits, chars, is_max))
    return windows_of([rows[i] for i in rng.permutation(len(rows))])


def slow_decode(windows, logits_of, question, n_best_size, max_answer_length):
    """(score, first, last character, start logit, end logit) of each candidate, and the score of none: one by one."""
    found, null = {}, math.inf
    own = [row for row in range(len(windows.example)) if windows.example[row] == question]
    for exhaustive in (False, True):
        for row in own:
            begin, stop = windows.row_splits[row], windows.row_splits[row + 1]
            starts, ends = logits_of[begin:stop].T.tolist()
            null = min(null, starts[0] + ends[0])
            inside = range(windows.context_start[row], windows.context_end[row])
            most = len(starts) if exhaustive else n_best_size
            pairs = []
            for start in sorted(range(len(starts)), key=lambda i: (-starts[i], i))[:most]:
                for end in sorted(range(len(ends)), key=lambda i: (-ends[i], i))[:most]:
                    is_short = start <= end < start + max_answer_length
                    if start in inside and end in inside and is_short and windows.max_context[begin + start]:
                        pairs.append((-(starts[start] + ends[end]), start, end))
            for _, start, end in sorted(pairs)[:1] if exhaustive else pairs:
                span = int(windows.char_start[begin + start]), int(windows.char_end[begin + end])
                if span not in found or starts[start] + ends[end] > sum(found[span]):
                    found[span] = starts[start], ends[end]
        if found:
            break
    ranked = sorted(found.items(), key=lambda item: (-sum(item[1]), item[0]))[:n_best_size]
    return [(sum(logits), *span, *logits) for span, logits in ranked], null


def listed(candidates, question):
    a, b = candidates.row_splits[question : question + 2]
    names = ("score", "char_start", "char_end", "start_logit", "end_logit")
    return list(zip(*(getattr(candidates, name)[a:b].tolist() for name in names), strict=True))


@pytest.fixture
def traced_anew(monkeypatch):
    """For what is compiled: with limits of its own."""
    answers_module._compiled.cache_clear()
    yield monkeypatch
    answers_module._compiled.cache_clear()


GRID = itertools.product([900, 1 << 20], [(20, 30), (3, 5), (1, 1), (5, 1000), (10**20, 10**20)], [False, True])
QUICK = [(900, (3, 5), True), (900, (10**20, 10**20), False), (1 << 20, (1, 1), False), (1 << 20, (20, 30), True)]
CASES = [each if each in QUICK else pytest.param(*each, marks=pytest.mark.slow) for each in GRID]


@pytest.mark.parametrize("at_once, sizes, coarse", CASES)
def test_the_same_as_pair_by_pair(traced_anew, coarse, sizes, at_once):
    n_best_size, max_answer_length = sizes
    traced_anew.setattr(answers_module, "PAIRS_AT_ONCE", at_once)
    windows, logits = random_windows(np.random.default_rng(n_best_size), 30, coarse=coarse)
    candidates = decode(windows, logits, n_best_size=n_best_size, max_answer_length=max_answer_length)
    odds = answers_module.select_answers(candidates, AnsweringConfig()).null_odds.numpy()
    assert len(odds) == 30
    for question in range(30):
        expected, null = slow_decode(windows, logits, question, n_best_size, max_answer_length)
        found = listed(candidates, question)
        if coarse:  # Windows may give one span the same score from other logits.
            expected, found = [row[:3] for row in expected], [row[:3] for row in found]
        assert found == expected
        assert found and len(found) <= n_best_size
        assert candidates.null_score[question] == null
        assert odds[question] == null - found[0][0]
    assert candidates.char_start.dtype == candidates.char_end.dtype == np.int32


def one_window(start, end, *, context=(3, 7)):
    """A window of 8 tokens, whose context is a character each."""
    chars = np.zeros(8, np.int32)
    chars[slice(*context)] = np.arange(context[1] - context[0])
    return windows_of([(0, *context, [start, end], [chars, chars + 1], np.ones(8, bool))])


@pytest.mark.parametrize("n_best_size", [1, 8])
def test_a_token_of_blanks_alone_is_neither_first_nor_last(n_best_size):
    """A unigram tokenizer has one where a text ends with a blank; its characters are the place after it."""
    #                     CLS q  SEP a  b  c  d  SEP
    windows = one_window([0, 0, 0, 1, 2, 0, 9, 0], [0, 0, 0, 1, 3, 2, 9, 0])
    assert listed(decode(*windows, n_best_size=n_best_size), 0)[0] == (18, 3, 4, 9, 9)
    windows[0].char_start[6] = windows[0].char_end[6]
    assert listed(decode(*windows, n_best_size=n_best_size), 0)[0] == (5, 1, 2, 2, 3)


@pytest.mark.parametrize("ends_first", [False, True])
def test_large_options_take_no_more_memory_than_a_row_needs(ends_first):
    """100 windows; with all the best ends before the best starts, each window is searched for its best pair."""
    count, width = 100, 384
    logits, places = np.random.default_rng(0).normal(size=(count, 2, width)), np.arange(width)
    logits[:, 0, 200:] += 100 * ends_first
    logits[:, 1, :200] += 100 * ends_first
    chars, is_max = [places, places + 1], (places >= 10) & (places < width - 1)
    windows = windows_of([(row, 10, width - 1, logits[row], chars, is_max) for row in range(count)])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = decode(*windows, n_best_size=100 if ends_first else width, max_answer_length=10**9)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert np.diff(found.row_splits).tolist() == [1 if ends_first else width] * count
    assert peak < 400e3, "kilobytes"
    shown = listed(decode(*windows, max_answer_length=width), 7)
    assert listed(found, 7)[: len(shown)] == shown[: len(listed(found, 7))]


def test_a_context_without_a_token_has_no_answer():
    candidates = decode(*one_window([2] * 8, [1] * 8, context=(3, 3)))
    assert listed(candidates, 0) == []
    none = {"text": "", "probability": 1.0, "start_logit": 2.0, "end_logit": 1.0}
    for version_2 in (False, True):
        answers = QuestionAnswering(AnsweringConfig(version_2_with_negative=version_2)).answers(candidates)
        assert (answers.texts(["abcd"], np.array([0])), answers.probability, answers.null_odds) == ([""], [1], [3])
        assert list(answers_module.n_best(candidates, ["abcd"], np.array([0]), version_2)) == [[none]]


# --- Answers and files ---------------------------------------------------------------------------------------------

LOGITS = {"start_logit": [2, 1, 0.5, 1], "end_logit": [1, 0.5, 0.25, 0]}
LOGITS |= {"null_start_logit": [1, 0, 1.5], "null_end_logit": [1, 0.75, 0.5]}
CANDIDATES = Candidates(  # Of three questions: two, one, and one that scores less than none.
    row_splits=np.array([0, 2, 3, 4]),
    char_start=np.array([14, 0, 10, 0], np.int32),
    char_end=np.array([18, 4, 11, 3], np.int32),
    score=np.array([3, 1.5, 0.75, 1]),
    null_score=np.array([2, 0.75, 2]),
    **{name: np.array(values, np.float32) for name, values in LOGITS.items()},
)
CONTEXTS = ["Anna lives in Oslo.", "Ben écrit 😀 here."]


def softmax(*scores):
    return [math.exp(score) / sum(map(math.exp, scores)) for score in scores]


def test_probabilities():
    own, null = (part.numpy() for part in probabilities(CANDIDATES, False))
    np.testing.assert_allclose(own, [*softmax(3, 1.5), 1, 1])
    assert null.tolist() == [0, 0, 0]
    own, null = (part.numpy() for part in probabilities(CANDIDATES, True))
    first, third = softmax(3, 1.5, 2), softmax(1, 2)
    np.testing.assert_allclose(own, [*first[:2], 0.5, third[0]])
    np.testing.assert_allclose(null, [first[2], 0.5, third[1]])


BY_THRESHOLD = [
    ({}, ["Oslo", "😀", "Ben"]),
    ({"null_score_diff_threshold": -9.0}, ["Oslo", "😀", "Ben"]),  # Of version 2 alone.
    ({"version_2_with_negative": True}, ["Oslo", "😀", ""]),
    ({"version_2_with_negative": True, "null_score_diff_threshold": 1.0}, ["Oslo", "😀", "Ben"]),
    ({"version_2_with_negative": True, "null_score_diff_threshold": -0.5}, ["Oslo", "", ""]),
    ({"version_2_with_negative": True, "null_score_diff_threshold": -1.0}, ["Oslo", "", ""]),
    ({"version_2_with_negative": True, "null_score_diff_threshold": -1.5}, ["", "", ""]),
]


@pytest.mark.parametrize(("options", "texts"), BY_THRESHOLD)
def test_no_answer_by_the_threshold(options, texts):
    found = QuestionAnswering(AnsweringConfig(**options)).answers(CANDIDATES)
    assert found.texts(CONTEXTS, np.array([0, 1, 1])) == texts
    assert found.null_odds.tolist() == [-1, 0, 1]
    own, null = (part.numpy() for part in probabilities(CANDIDATES, "version_2_with_negative" in options))
    assert found.probability.tolist() == [own[[0, 2, 3][i]] if texts[i] else null[i] for i in range(3)]


def written(directory, ids, **options):
    """What the files hold, by their names."""
    contexts = {"contexts": CONTEXTS, "context_of": np.array([0, 1, 1])}
    examples = QuestionExamples(name="x", ids=ids, questions=ids, answers=[()] * len(ids), **contexts)
    QuestionAnswering(AnsweringConfig(**options)).write_evaluation(directory, CANDIDATES, examples, "eval")
    return {path.name: json.loads(path.read_text()) for path in sorted(directory.iterdir())}


def test_files(tmp_path):
    ids = ["a", 'b"\n', "é"]
    files = written(tmp_path, ids, version_2_with_negative=True, null_score_diff_threshold=0.5)
    assert [*files] == ["eval_nbest_predictions.json", "eval_null_odds.json", "eval_predictions.json"]
    lists, odds, texts = files.values()
    assert texts == {"a": "Oslo", 'b"\n': "😀", "é": ""}
    assert odds == {"a": -1.0, 'b"\n': 0.0, "é": 1.0}
    assert list(lists) == ids
    # No answer stands where its score puts it; of equal ones, last.
    assert [entry["text"] for entry in lists["a"]] == ["Oslo", "", "Anna"]
    assert [entry["text"] for entry in lists['b"\n']] == ["😀", ""]
    assert [entry["text"] for entry in lists["é"]] == ["", "Ben"]
    probability = pytest.approx(softmax(3, 1.5, 2)[0], rel=1e-15)
    assert lists["a"][0] == {"text": "Oslo", "probability": probability, "start_logit": 2.0, "end_logit": 1.0}
    for entries in lists.values():
        assert sum(entry["probability"] for entry in entries) == pytest.approx(1)


def test_files_of_version_1(tmp_path):
    files = written(tmp_path, ["a", "b", "c"])
    assert [*files] == ["eval_nbest_predictions.json", "eval_predictions.json"]
    lists = files["eval_nbest_predictions.json"].values()
    assert [[entry["text"] for entry in entries] for entries in lists] == [["Oslo", "Anna"], ["😀"], ["Ben"]]
