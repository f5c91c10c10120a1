"""Taggers in the graph: an exported one against `--mode=predict`."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.refusals import refused
from tests.support.saved_models import HOSTILE, predict_with, read_json
from tests.support.served import answers_of, export_of, random_ids, random_model, save
from tests.support.texts import TEXTS, VOCAB, long_words, random_texts
from tfbert.tasks.token_classification.token_classification import Tagger, TokenClassification

IOB2, WORD_TAGS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER"), ("NOUN", "PUNCT", "VERB")
LENGTH, SEED = 16, 3
LONG = "The quick brown fox, jumping over İstanbul; 中文字 e\u0301te\u0301 😀 " * 30


@pytest.fixture(scope="module")
def model():
    """A tagger of entities, rows of 16 tokens."""
    return random_model(TokenClassification(IOB2), num_texts=1, max_seq_length=LENGTH, seed=SEED)


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    return save(model, tmp_path_factory.mktemp("models") / "tagger")


@pytest.fixture(scope="module")
def exported(saved, tmp_path_factory):
    directory = tmp_path_factory.mktemp("exports") / "tagger"
    found = {"num_texts": 1, "max_seq_length": LENGTH, "label_names": list(IOB2), "weights": "float32"}
    assert export_of(saved.parent, saved.name, directory) == found | {"strict_entities": False}
    return directory


def flat(rows):
    """What `predict` wrote, as an exported model answers."""
    entities = [(row["id"], entity) for row in rows for entity in row["entities"]]
    names = {"type": "entity_group", "text": "word", "start": "start", "end": "end", "score": "score"}
    found = {f"entity_{name}": [entity[key] for _, entity in entities] for name, key in names.items()}
    return found | {"entity_row": [i for i, _ in entities]}


@pytest.fixture
def predicted(write, tmp_path):
    """A function: what `--mode=predict` with a saved model says of texts."""

    def predicted(saved, texts):
        path = write("in.jsonl", [{"id": i, "text": text} for i, text in enumerate(texts)])
        predict_with(saved.parent, saved.name, input_file=path, output_file=tmp_path / "out.jsonl")
        return read_json(tmp_path / "out.jsonl")

    return predicted


def test_an_exported_tagger_says_what_predict_says(saved, exported, ask, predicted):
    texts = ["", *TEXTS, *random_texts(40), LONG, "x" * 5000, *long_words()[:20], " "]
    want = flat(predicted(saved, texts))
    found = ask(exported, text=[text.encode() for text in texts])
    assert found.pop("signatures") == ["serving_default", "text", "token_ids"]
    assert len(found["entity_row"]) > 200 and set(found["entity_type"]) == {"LOC", "PER"}
    entities = zip(found["entity_row"], found["entity_start"], found["entity_end"], strict=True)
    assert found["entity_text"] == [texts[row][start:end] for row, start, end in entities]
    last = max(end for row, end in zip(found["entity_row"], found["entity_end"], strict=True) if texts[row] == LONG)
    assert last > 0.9 * len(LONG)
    assert found.pop("error") == [""] * len(texts)
    assert set(found) == set(want)
    np.testing.assert_allclose(found["entity_score"], want.pop("entity_score"), atol=1e-5)
    assert want == {name: found[name] for name in want}


@pytest.fixture(scope="module")
def signatures(exported):
    return tf.saved_model.load(str(exported)).signatures


def test_bytes_that_are_no_utf8_are_those_that_python_decodes(signatures):
    texts = [*HOSTILE[3:], b"\xff\xfe fox \xed\xa0\x80 the"]
    found = answers_of(signatures["text"], text=texts)
    want = answers_of(signatures["text"], text=[text.decode(errors="replace") for text in texts])
    for name, values in want.items():
        np.testing.assert_array_equal(found[name], values)
    assert set(want["entity_row"]) > {len(texts) - 1}


@pytest.mark.parametrize("texts", [[], [""], ["", " "]])
def test_no_words_have_no_entities(signatures, texts):
    kinds = {"row": "int32", "type": "object", "text": "object", "start": "int32", "end": "int32", "score": "float32"}
    found = answers_of(signatures["text"], text=texts)
    assert found.pop("error").tolist() == [b""] * len(texts)
    assert {name: values.dtype.name for name, values in found.items()} == {f"entity_{n}": k for n, k in kinds.items()}
    assert {values.shape for values in found.values()} == {(0,)}


def test_tags_that_are_no_entities_are_those_of_words(predicted, tmp_path):
    task = TokenClassification(WORD_TAGS)
    model = random_model(task, num_texts=1, max_seq_length=LENGTH, seed=5)  # It gives all three tags.
    rows = predicted(save(model, tmp_path / "words"), [*TEXTS, LONG])
    words = [(row["id"], word) for row in rows for word in row["words"]]
    found = answers_of(Tagger(model).answer, text=[*TEXTS, LONG])
    assert found["word_row"].tolist() == [i for i, _ in words]
    for name, key in (("tag", "entity"), ("text", "word")):
        assert found[f"word_{name}"].tolist() == [word[key].encode() for _, word in words]
    for name in ("start", "end"):
        assert found[f"word_{name}"].tolist() == [word[name] for _, word in words]
    assert {tag.decode() for tag in found["word_tag"]} == set(WORD_TAGS)
    assert ((found["word_score"] > 1 / 3) & (found["word_score"] <= 1)).all()
    np.testing.assert_allclose(found["word_score"], [word["score"] for _, word in words], atol=1e-5)


@pytest.mark.parametrize("names", [IOB2, pytest.param(WORD_TAGS, marks=pytest.mark.slow)], ids=["entities", "words"])
def test_a_text_that_is_not_finite_has_an_error_and_changes_no_other(names, tmp_path):
    model = random_model(TokenClassification(names), num_texts=1, max_seq_length=LENGTH, seed=SEED)
    embeddings = model.classifier.bert.embeddings.weight
    values = embeddings.numpy()
    values[VOCAB.index("movie")] = np.nan
    embeddings.assign(values)
    tagger, texts = Tagger(model), ["the fox", "", LONG + "movie", LONG, "movie", "fox 😀", "a movie"]
    found = answers_of(tagger.answer, text=texts)
    error = found.pop("error")
    assert np.flatnonzero(error != b"").tolist() == [2, 4, 6] and error[2].startswith(b"Predictions must be finite.")
    (what,) = {name.partition("_")[0] for name in found}
    assert {0, 3, 5} == set(found[f"{what}_row"].tolist())
    good = answers_of(tagger.answer, text=[texts[i] for i in (0, 1, 3, 5)])
    assert not good.pop("error").any()
    np.testing.assert_allclose(found.pop(f"{what}_score"), good.pop(f"{what}_score"), atol=1e-5)
    np.testing.assert_array_equal(found.pop(f"{what}_row"), np.array([0, 1, 3, 5])[good.pop(f"{what}_row")])
    for name, values in good.items():
        np.testing.assert_array_equal(found[name], values)


def test_token_ids(model, signatures):
    inputs = random_ids()
    found = signatures["token_ids"](**{name: tf.constant(value) for name, value in inputs.items()})
    assert set(found) == {"logits", "error"} and not any(found["error"].numpy())
    np.testing.assert_allclose(found["logits"], model.classifier(inputs).logits, atol=1e-5)
    none = signatures["token_ids"](**{name: tf.zeros([0, 4], tf.int32) for name in inputs})
    assert none["logits"].shape == (0, 4, len(IOB2))


def test_a_row_without_room_for_a_word():
    tagger = Tagger(random_model(TokenClassification(IOB2), num_texts=1, max_seq_length=2))
    with refused("must hold 2 special tokens and a word. Received: max_seq_length=2"):
        tagger.answer(text=tf.constant(["a"]))
