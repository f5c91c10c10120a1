"""Question answering in the graph: an exported model against `--mode=predict`, and that a row changes no other."""

import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from tests.support.saved_models import HOSTILE, predict_with, read_json, save_with_nan
from tests.support.served import answers_of, export_of, random_ids, random_model, save
from tests.support.texts import TEXTS, VOCAB, after_marks, has_ordered_mark, hugging_face, long_words, random_texts
from tests.support.transformers_4 import transformers_4
from tfbert.config.tasks import AnsweringConfig
from tfbert.tasks.question_answering import question_answering as answering
from tfbert.tokens.tokenizer import BertTokenizer

LENGTH = 32
LONG = "The quick brown fox, jumping over İstanbul; 中文字 e\u0301te\u0301 한글 😀 " * 12
QUESTIONS = ["", "fox?", "The quick brown fox jumping over unbelievable movies: who?", "中文 字", " ", "e\u0301\ufffd"]


def asked(contexts):
    """A question for each context."""
    return [QUESTIONS[i % len(QUESTIONS)] for i in range(len(contexts))]


MARKED = [
    "Jose\u0301 sang nai\u0308ve songs with Zoe\u0308",
    "شكرا\u064b جزيلا\u064b سَلَام",
    "שָׁל\u05b9ום. הַ",
    "I ❤\ufe0f you, 1\ufe0f\u20e3 😀\U000e0067\U000e007f",
    "नमस्ते क\u094d\u200d ทั้ง กำ\u0301 中\U000e0100文",
    "\u0301fox\u200b\u0301 (e\u0323\u0301) \u1112\u1161\u11ab\u0301 각\u0301",
]


@pytest.mark.parametrize("casing", [{}, {"do_lower_case": False}], ids=["uncased", "cased"])
def test_what_training_marks_is_what_is_answered(vocab_file, casing):
    """With perfect scores, an answer of some of Hugging Face's pieces, with the dropped marks after the last, comes
    back from its characters."""
    tokenizer, reference = BertTokenizer(VOCAB, **casing), hugging_face(vocab_file, **casing)
    rng, contexts, spans = np.random.default_rng(0), [], []
    for text in [*MARKED * 5, *TEXTS, *random_texts(80)]:
        encoded = reference(text, add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True)
        offsets = [] if has_ordered_mark(text) else encoded["offset_mapping"]
        if offsets:
            first = rng.integers(len(offsets))
            last = min(first + rng.integers(4), len(offsets) - 1)
            contexts.append(text)
            spans.append((offsets[first][0], after_marks(reference, text, offsets[last][1])))
    options = {"max_seq_length": 512, "doc_stride": 128, "max_query_length": 9}
    windows = answering.make_windows(tokenizer, ["fox?"] * len(contexts), contexts, range(len(contexts)), **options)
    assert len(windows.example) == len(contexts)
    labels = answering.window_labels(windows, np.array(spans))
    logits = np.zeros([len(windows.tokens.flat), 2], np.float32)
    logits[windows.tokens.row_splits[:-1, None] + labels, [0, 1]] = 9
    task = answering.QuestionAnswering()
    encoded = answering.EncodedQuestions(tokens=windows.tokens, labels=labels, weights=None, windows=windows)
    golds = [context[start:end] for context, (start, end) in zip(contexts, spans, strict=True)]
    assert len({gold[-1] for gold in golds if unicodedata.category(gold[-1]) in ("Mn", "Cf")}) > 5
    answers = task.answers(task.predictions(logits, encoded)).texts(contexts, np.arange(len(contexts)))
    assert answers == golds
    assert answering.squad_metrics([[gold] for gold in golds], answers)["exact_match"] == 100


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model of rows of 32 tokens, some of whose questions have no answer."""
    task = answering.QuestionAnswering(AnsweringConfig(doc_stride=7, max_query_length=10, version_2_with_negative=True))
    return save(random_model(task, num_texts=2, max_seq_length=LENGTH), tmp_path_factory.mktemp("models") / "answers")


@pytest.fixture(scope="module")
def exported(saved, tmp_path_factory):
    directory = tmp_path_factory.mktemp("exports") / "answers"
    found = {"num_texts": 2, "max_seq_length": LENGTH, "label_names": [], "weights": "float32"}
    found |= {"doc_stride": 7, "max_query_length": 10, "n_best_size": 20, "max_answer_length": 30}
    found |= {"version_2_with_negative": True, "null_score_diff_threshold": 0.0}
    assert export_of(saved.parent, saved.name, directory) == found
    return directory


@pytest.fixture(scope="module")
def signatures(exported):
    return tf.saved_model.load(str(exported)).signatures


def answers(signature, questions, contexts):
    return answers_of(signature, question=questions, context=contexts)


def errors_beside_others(signature, questions, contexts, bad):
    """The errors of the bad ones, which have no answer, and the others have those that they have alone."""
    found = answers(signature, questions, contexts)
    is_bad = found["error"] != b""
    assert np.flatnonzero(is_bad).tolist() == bad
    assert not any(found[name][is_bad].any() for name in ("answer", "start", "end", "score"))
    good = np.flatnonzero(~is_bad)
    alone = answers(signature, [questions[i] for i in good], [contexts[i] for i in good])
    np.testing.assert_allclose(alone.pop("score"), found["score"][good], atol=1e-5)
    for name, values in alone.items():
        np.testing.assert_array_equal(values, found[name][good])
    return found["error"][bad]


def test_an_exported_model_says_what_predict_says(saved, signatures, write, tmp_path):
    contexts = [*TEXTS, *random_texts(40), LONG, LONG[5:], *long_words()[:20], "x" * 5000, "\x07\u0301", "fox"]
    contexts = [text for text in contexts if text.strip()]
    questions = [question if question.strip() else "\x07" for question in asked(contexts)]
    rows = [{"id": i, "question": q, "context": c} for i, (q, c) in enumerate(zip(questions, contexts, strict=True))]
    predict_with(saved.parent, saved.name, input_file=write("in.jsonl", rows), output_file=tmp_path / "out.jsonl")
    want = read_json(tmp_path / "out.jsonl")
    assert sorted(signatures) == ["serving_default", "text", "token_ids"]
    found = answers(signatures["serving_default"], questions, contexts)
    assert set(found) == {"answer", "start", "end", "score", "error"} and not any(found["error"])
    found["answer"] = [text.decode() for text in found["answer"]]
    for name in ("answer", "start", "end"):
        assert list(found[name]) == [row[name] for row in want], name
    np.testing.assert_allclose(found["score"], [row["score"] for row in want], atol=1e-5)
    spans = zip(contexts, found["start"], found["end"], strict=True)
    assert found["answer"] == [context[start:end] for context, start, end in spans]
    assert 20 < sum(map(bool, found["answer"])) < len(contexts) - 4
    assert found["score"][-2] == 1.0, "a context without a token has no other answer than none"


def test_bytes_that_are_no_utf8_are_those_that_python_decodes(signatures):
    contexts = [*HOSTILE[3:], b"\xff\xfe fox \xed\xa0\x80 the"]
    questions = [b"\xff fox\xc3?"] * len(contexts)
    found = answers(signatures["text"], questions, contexts)
    decoded = ([text.decode(errors="replace") for text in texts] for texts in (questions, contexts))
    for name, values in answers(signatures["text"], *decoded).items():
        np.testing.assert_array_equal(found[name], values)
    assert any(found["answer"])


def test_no_questions_have_no_answers(signatures):
    kinds = {"answer": "object", "start": "int32", "end": "int32", "score": "float32", "error": "object"}
    found = answers(signatures["text"], [], [])
    assert {name: (v.dtype.name, v.shape) for name, v in found.items()} == {n: (k, (0,)) for n, k in kinds.items()}
    with pytest.raises(tf.errors.InvalidArgumentError, match="question and context must be of one length. Received: "):
        answers(signatures["text"], ["fox?", "the?"], ["the fox"])


BLANKS = ["", *(chr(code) for code in range(0x110000) if chr(code).isspace()), " \t\x1c\x85\u3000\n"]


def test_an_empty_question_or_context_has_no_answer_and_changes_no_other(signatures):
    """What `predict` calls empty, and nothing else."""
    questions = ["fox?", *BLANKS, *["fox?"] * len(BLANKS), "fox?"]
    contexts = ["the fox", *["fox"] * len(BLANKS), *BLANKS, LONG]
    errors = errors_beside_others(signatures["text"], questions, contexts, [*range(1, 2 * len(BLANKS) + 1)])
    assert set(errors) == {b"A question and its context must not be empty."}
    others = [text for text in map(chr, range(1, 0x3100)) if text not in BLANKS and text.isprintable() is False]
    others = [text for text in others if not 0xD800 <= ord(text) < 0xE000]
    assert not answers(signatures["text"], others, others)["error"].any()


@pytest.mark.slow
def test_a_row_that_is_not_finite_has_no_answer_and_changes_no_other(saved, tmp_path):
    save_with_nan(saved, tmp_path / "broken", word="movie")
    export_of(tmp_path, "broken", tmp_path / "export")
    served = tf.saved_model.load(str(tmp_path / "export")).signatures["text"]
    questions, contexts = [*["fox?"] * 4, "movie"], ["the fox", LONG + " movie", LONG, "fox", "fox"]
    assert errors_beside_others(served, questions, contexts, [1, 4])[0].startswith(b"Predictions must be finite.")


def test_token_ids(saved, signatures):
    inputs = random_ids() | {"attention_mask": np.ones((3, 9), np.int32)}  # An export scores no answer in padding.
    found = signatures["token_ids"](**{name: tf.constant(value) for name, value in inputs.items()})
    want = transformers_4("TFBertForQuestionAnswering").from_pretrained(saved)(inputs)
    assert set(found) == {"start_logits", "end_logits", "error"} and not any(found.pop("error").numpy())
    for name, values in found.items():
        np.testing.assert_allclose(values, want[name], atol=1e-5)
