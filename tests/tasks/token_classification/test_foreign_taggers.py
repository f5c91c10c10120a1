"""Taggers of others, whose tags are BIOES, BILOU, BMES or IO: scored by their own scheme, whatever the data's is."""

import pathlib

import numpy as np
import pytest

from tfbert import BertConfig, TaggingConfig, UsageError
from tfbert.config.tasks import TaskOptions
from tfbert.tasks.token_classification.tagged import TaggedTable
from tfbert.tasks.token_classification.token_classification import TokenClassification

# A person of three words, a place of one; a place, a person of two.
WRITTEN = {
    "IOB2": ["B-PER I-PER I-PER O B-LOC", "B-LOC O B-PER I-PER"],
    "BIOES": ["B-PER I-PER E-PER O S-LOC", "S-LOC O B-PER E-PER"],
    "BILOU": ["B-PER I-PER L-PER O U-LOC", "U-LOC O B-PER L-PER"],
    "BMES": ["B-PER M-PER E-PER O S-LOC", "S-LOC O B-PER E-PER"],
    "IO": ["I-PER I-PER I-PER O I-LOC", "I-LOC O I-PER I-PER"],
}
# The person without its first word, and the place; a person in the place's stead, and one that BIOES does not allow.
WRONG = {
    "BIOES": ["O B-PER E-PER O S-LOC", "S-PER O B-PER I-PER"],
    "BILOU": ["O B-PER L-PER O U-LOC", "U-PER O B-PER I-PER"],
    "BMES": ["O B-PER E-PER O S-LOC", "S-PER O B-PER M-PER"],
    "IO": ["O I-PER I-PER O I-LOC", "I-PER O I-PER I-PER"],
}
RIGHT_WORDS = {"BIOES": 5 / 9, "BILOU": 5 / 9, "BMES": 5 / 9, "IO": 7 / 9}
MODELS = ["BIOES", "IO", *(pytest.param(scheme, marks=pytest.mark.slow) for scheme in ("BILOU", "BMES"))]


def labels_of(scheme):
    letters = {"BIOES": "BIES", "BILOU": "BILU", "BMES": "BMES", "IO": "I"}[scheme]
    return ("O", *(f"{letter}-{kind}" for kind in ("PER", "LOC") for letter in letters))


def scored(scheme, said, gold, strict=False):
    """Of a tagger that says `said` with all its might: the metrics, and the notes about the data."""
    saved, notes = BertConfig(id2label=dict(enumerate(labels_of(scheme)))), []
    options = TaskOptions(tagging=TaggingConfig(strict_entities=strict))
    task = TokenClassification.of_model(saved, pathlib.Path("m"), options)
    tags = [sentence.split() for sentence in gold]
    table = TaggedTable(name="x", words=tags, tags=tags, lines=list(range(len(tags))))
    ids = [task.label_names.index(tag) for sentence in said for tag in sentence.split()]
    predictions = 20 * np.eye(len(task.label_names), dtype=np.float32)[ids]
    # As after `subset`, which takes some.
    return task.metrics(predictions, task.examples(table, notes).take(range(len(tags)))), notes


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("scheme", MODELS)
def test_data_of_every_scheme_is_scored_as_data_of_the_own_one(scheme, strict):
    for said in (WRITTEN[scheme], WRONG[scheme]):
        expected, _ = scored(scheme, said, WRITTEN[scheme], strict)
        # Of four entities the place, and the last person where nothing says that it does not end.
        found = 3 if strict and scheme != "IO" else 4
        scores = [(found - 2) / found, (found - 2) / 4, RIGHT_WORDS[scheme]] if said == WRONG[scheme] else [1, 1, 1]
        assert [expected[name] for name in ("precision", "recall", "accuracy")] == pytest.approx(scores)
        assert (expected["loss"] < 1e-3) == (said == WRITTEN[scheme])
        for data in WRITTEN:
            found, notes = scored(scheme, said, WRITTEN[data], strict)
            is_said = any(f"tags are {data}" in note and f"converted to {scheme}" in note for note in notes)
            assert found == expected and is_said == (data != scheme), data


@pytest.mark.parametrize("strict", [False, True])
def test_touching_entities_are_two_though_the_model_can_only_say_one(strict):
    """As for seqeval, which takes the data's tags as they are."""
    found, _ = scored("IO", ["I-PER I-PER O I-LOC"], ["B-PER B-PER O B-LOC"], strict)
    assert (found["precision"], found["recall"], found["accuracy"]) == (1 / 2, 1 / 3, 1)


def test_a_tag_that_the_model_has_only_in_the_scheme_of_the_data():
    message = r"Received: 'S-ORG', written 'B-ORG', in the sentence of x"
    with pytest.raises(UsageError, match=message):
        scored("BIOES", ["O O"], ["O B-ORG"])
