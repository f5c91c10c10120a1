"""Windows against Hugging Face's sliding ones, against loops over google-research/bert's rules, and labels by hand."""

import collections

import numpy as np
import pytest

from tests.support.real_texts import SQUAD, needs_real_data, squad, tokenizers
from tests.support.texts import TEXTS, after_marks, has_ordered_mark, hugging_face, random_texts
from tfbert.tasks.question_answering.question_answering import make_windows, window_labels


def assert_equals_hugging_face(tokenizer, reference, questions, contexts, context_of, **sizes):
    """All rows, segments and characters; returns how many windows there are. Their overlap is one number a call, ours
    depends on the question, so questions of the same length go together; and their question is never cut."""
    windows = make_windows(tokenizer, questions, contexts, context_of, **sizes)
    max_query_length = min(sizes.get("max_query_length", 64), sizes["max_seq_length"] - 4)  # Beside a token of context.
    asked = tokenizer.encode_with_offsets(questions)
    groups = collections.defaultdict(list)
    for i, length in enumerate(np.minimum(np.diff(asked.row_splits), max_query_length).tolist()):
        groups[length].append(i)
    rows = collections.defaultdict(list)
    for length, examples in groups.items():
        cut = [questions[i] for i in examples]
        if length == max_query_length:
            cut = [questions[i][: asked.ends[asked.row_splits[i] + length - 1]] for i in examples]
        overlap = max(sizes["max_seq_length"] - 3 - length - sizes["doc_stride"], 0)
        options = {"truncation": "only_second", "max_length": sizes["max_seq_length"], "stride": overlap}
        returned = {"return_overflowing_tokens": True, "return_offsets_mapping": True, "split_special_tokens": True}
        encoded = reference(cut, [contexts[context_of[i]] for i in examples], **options, **returned)
        for row, sample in enumerate(encoded["overflow_to_sample_mapping"]):
            columns = (encoded[key][row] for key in ("input_ids", "token_type_ids", "offset_mapping"))
            rows[examples[sample]].append(tuple(columns))

    wanted = [(i, *row) for i in range(len(questions)) for row in rows[i]]
    assert windows.example.tolist() == [example for example, *_ in wanted]
    bounds = zip(windows.tokens.row_splits[:-1], windows.tokens.row_splits[1:], strict=True)
    for window, ((start, end), (_, ids, segments, offsets)) in enumerate(zip(bounds, wanted, strict=True)):
        first, last = windows.context_start[window], windows.context_end[window]
        assert windows.tokens.flat[start:end].tolist() == ids
        assert segments == [0] * first + [1] * (last - first + 1)
        characters = zip(windows.char_start[start:end].tolist(), windows.char_end[start:end].tolist(), strict=True)
        context = contexts[context_of[windows.example[window]]]
        marked = [(first, after_marks(reference, context, last)) for first, last in offsets]
        assert list(characters) == [pair if i in range(first, last) else (0, 0) for i, pair in enumerate(marked)]
    np.testing.assert_array_equal(windows.tokens.second_start, windows.context_start)
    return windows


@pytest.mark.parametrize("max_seq_length, doc_stride", [(16, 1), (16, 5), (20, 9), (20, 15), (64, 31), (7, 128)])
def test_rows_equal_hugging_face(vocab_file, tokenizer, max_seq_length, doc_stride):
    reference = hugging_face(vocab_file)
    contexts = [text for text in [*TEXTS, *random_texts(60)] if not has_ordered_mark(text)]
    contexts += [" ".join("abcdefghij"[:n]) for n in range(11)] + ["the quick brown fox jumped over. " * 9]
    rng = np.random.default_rng(0)
    questions = [" ".join("rstuvwx"[: rng.integers(8)]) for _ in range(150)]  # The empty one too; 4 tokens are left.
    context_of = rng.integers(len(contexts), size=150)
    sizes = {"max_seq_length": max_seq_length, "doc_stride": doc_stride, "max_query_length": 4}
    windows = assert_equals_hugging_face(tokenizer, reference, questions, contexts, context_of, **sizes)
    assert len(windows.example) > 150


def is_max_context(spans, current, position):
    """The rule of google-research/bert, written as it is told: (start, length) of all spans of a document."""
    scores = []
    for start, length in spans:
        left, right = position - start, start + length - 1 - position
        scores.append(min(left, right) + 0.01 * length if left >= 0 and right >= 0 else -1)
    return scores.index(max(scores)) == current


@pytest.mark.parametrize("max_seq_length, doc_stride", [(10, 1), (12, 3), (13, 4), (30, 20), (10, 128)])
def test_each_token_has_one_window_with_most_context(tokenizer, max_seq_length, doc_stride):
    contexts = [" ".join("a" * n) for n in range(40)]
    sizes = {"max_seq_length": max_seq_length, "doc_stride": doc_stride}
    windows = make_windows(tokenizer, ["the", "the fox", "a"] * 40, contexts, np.arange(120) // 3, **sizes)
    assert windows.max_context.sum() == 3 * sum(range(40))
    for example in range(120):
        mine = np.flatnonzero(windows.example == example)
        spans = [(windows.first_token[i], windows.context_end[i] - windows.context_start[i]) for i in mine]
        for current, i in enumerate(mine):
            row = windows.max_context[windows.tokens.row_splits[i] : windows.tokens.row_splits[i + 1]]
            inside = row[windows.context_start[i] : windows.context_end[i]].tolist()
            start, length = spans[current]
            assert inside == [is_max_context(spans, current, start + token) for token in range(length)]
            assert row.sum() == sum(inside)


def test_labels_are_the_tokens_that_have_a_character_of_the_answer(tokenizer):
    rng = np.random.default_rng(0)
    contexts = [text for text in random_texts(60) if text] + ["the foxes jumped over unbelievably " * 4] * 5
    contexts = list(dict.fromkeys(contexts))
    context_of = rng.integers(len(contexts), size=400)
    starts = [rng.integers(len(contexts[i])) for i in context_of]
    answers = [(start, start + rng.integers(9)) for start in starts]
    windows = make_windows(tokenizer, ["the fox"] * 400, contexts, context_of, max_seq_length=13, doc_stride=3)
    pieces = tokenizer.encode_with_offsets(contexts)
    labels = window_labels(windows, np.array(answers))
    assert [array.dtype.name for array in (*windows[3:], labels)] == ["int32"] * 5 + ["bool", "int32"]
    whole = 0
    for i, example in enumerate(windows.example):
        tokens = slice(*pieces.row_splits[context_of[example] :][:2])
        start, end = answers[example]
        pairs = enumerate(zip(pieces.starts[tokens], pieces.ends[tokens], strict=True))
        covered = [place for place, (first, last) in pairs if first < end and last > start and start < end]
        shift = windows.context_start[i] - windows.first_token[i]
        wanted = [covered[0] + shift, covered[-1] + shift] if covered else [0, 0]
        inside = covered and windows.context_start[i] <= wanted[0] and wanted[1] < windows.context_end[i]
        assert labels[i].tolist() == (wanted if inside else [0, 0])
        whole += bool(inside)
    assert 200 < whole < len(windows.example) - 200


def test_an_empty_context_has_a_window_and_no_questions_have_none(tokenizer):
    windows = make_windows(tokenizer, ["the", "fox"], [" ", "a"], [0, 1])
    assert windows.tokens.lengths.tolist() == [4, 5]
    assert (windows.context_start - windows.context_end).tolist() == [0, -1]
    assert windows.max_context.sum() == 1
    assert window_labels(windows, [(0, 1), (0, 1)]).tolist() == [[0, 0], [3, 3]]
    for contexts in ([], ["a"]):
        windows = make_windows(tokenizer, [], contexts, [])
        assert (len(windows.example), len(windows.tokens), len(windows.char_start)) == (0, 0, 0)
        assert window_labels(windows, []).shape == (0, 2)


@needs_real_data
@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", ["uncased", "cased"])
@pytest.mark.parametrize("name", SQUAD)
def test_real_questions(name, vocabulary):
    """All questions, at the default sizes and with many windows; and the tokens that labels name hold the answers."""
    questions, contexts, context_of, answers = squad(name)
    for sizes in ({"max_seq_length": 384, "doc_stride": 128}, {"max_seq_length": 128, "doc_stride": 40}):
        windows = assert_equals_hugging_face(*tokenizers(vocabulary), questions, contexts, context_of, **sizes)
        assert (np.bincount(windows.example) > 0).all()
        bounds = []
        for golds, context in zip(answers, context_of, strict=True):
            text, start = golds[0] if golds else ("", 0)
            there = contexts[context][start : start + len(text)] == text
            bounds.append((start, start + len(text)) if there else (0, 0))
        labels = window_labels(windows, bounds)
        labelled = np.flatnonzero(labels[:, 0])
        assert len(set(windows.example[labelled].tolist())) >= 0.99 * sum(start < end for start, end in bounds)
        first, last = (windows.tokens.row_splits[labelled, None] + labels[labelled]).T
        for window, start, end in zip(labelled, windows.char_start[first], windows.char_end[last], strict=True):
            wanted = bounds[windows.example[window]]
            context = contexts[context_of[windows.example[window]]]
            assert start <= wanted[0] and end >= wanted[1], (context[start:end], context[slice(*wanted)])
