"""Taggers of others, whose tags are BIOES, BILOU, BMES or IO: scored by their own scheme, whatever the data's is."""

import json

import numpy as np
import pytest

from tests.support.models import VOCAB, tiny_bert
from tests.support.task_runs import command
from tfbert.bert.models import TFBertForTokenClassification
from tfbert.errors import UsageError
from tfbert.model.head import save_pretrained
from tfbert.tasks.token_classification.tagged import TaggedTable
from tfbert.tasks.token_classification.token_classification import TokenClassification
from tfbert.tokens.tokenizer import BertTokenizer

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
MODELS = list(WRONG)


def labels_of(scheme):
    letters = {"BIOES": "BIES", "BILOU": "BILU", "BMES": "BMES", "IO": "I"}[scheme]
    return ("O", *(f"{letter}-{kind}" for kind in ("PER", "LOC") for letter in letters))


def save_tagger(directory, names):
    """A BERT that tags the word `w3` with its label 3, and so on, as another program would save it."""
    model = tiny_bert(num_labels=len(names), kind=TFBertForTokenClassification, num_hidden_layers=1)
    for variable in model.trainable_variables:
        variable.assign(np.ones(variable.shape) if "gamma" in variable.name else np.zeros(variable.shape))
    places = np.arange(len(names))
    table = np.zeros((VOCAB, model.config.hidden_size), np.float32)
    table[5 + places, places] = 1
    model.bert.embeddings.weight.assign(table)
    kernel = np.zeros(model.classifier.kernel.shape, np.float32)
    kernel[places, places] = 5
    model.classifier.kernel.assign(kernel)
    model.config.id2label = dict(enumerate(names))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(VOCAB - 5))]
    save_pretrained(model, BertTokenizer(words), directory)


def write_conll(path, names, said, gold):
    """Sentences whose words make such a model say `said`, with the tags `gold`."""
    rows = [zip(a.split(), b.split(), strict=True) for a, b in zip(said, gold, strict=True)]
    path.write_text("\n".join("".join(f"w{names.index(a)}\t{b}\n" for a, b in row) for row in rows))


@pytest.fixture(scope="module", params=[m if m == "BILOU" else pytest.param(m, marks=pytest.mark.slow) for m in MODELS])
def tagger(request, tmp_path_factory):
    """The name of a scheme, and a directory with a tagger of it in `model`."""
    directory = tmp_path_factory.mktemp(request.param)
    save_tagger(directory / "model", labels_of(request.param))
    return request.param, directory


@pytest.mark.parametrize("strict", [False, True])
def test_the_command_scores_a_tagger_by_its_own_scheme(tagger, strict):
    scheme, directory = tagger
    names = labels_of(scheme)
    write_conll(directory / "perfect.conll", names, WRITTEN[scheme], WRITTEN[scheme])
    write_conll(directory / "wrong.conll", names, WRONG[scheme], WRITTEN[scheme])
    found = command(
        "--mode=evaluate", f"--model={directory / 'model'}", f"--validation_file={directory / 'perfect.conll'}",
        f"--test_file={directory / 'wrong.conll'}", f"--output_dir={directory / f'strict-{strict}'}",
        *["--strict_entities"] * strict,
    )  # fmt: skip
    assert [found[f"eval_{name}"] for name in ("f1", "precision", "recall", "accuracy")] == [1, 1, 1, 1]
    assert found["eval_loss"] < 1e-3
    # Of four entities the place, and the last person where nothing says that it does not end.
    said = 3 if strict and scheme != "IO" else 4
    hits = said - 2
    assert [found[f"test_{name}"] for name in ("precision", "recall")] == [hits / said, hits / 4]
    assert found["test_accuracy"] == pytest.approx(RIGHT_WORDS[scheme]) and found["test_loss"] > 1
    assert json.loads((directory / f"strict-{strict}" / "eval_results.json").read_text()) == found


def scored(scheme, said, gold, strict=False):
    """Of a tagger that says `said` with all its might: the metrics, and the notes about the data."""
    task, notes = TokenClassification(labels_of(scheme), strict_entities=strict), []
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
        assert (expected["f1"] == 1) == (expected["accuracy"] == 1) == (said == WRITTEN[scheme])
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
