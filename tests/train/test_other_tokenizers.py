"""Runs of every task on a model whose tokenizer is not WordPiece: trained, evaluated, predicted, loaded, saved."""

import json

import numpy as np
import pytest
import tensorflow as tf
from transformers import AutoTokenizer

import tfbert
from tests.support.host_tokenizers import KINDS
from tests.support.models import tiny_bert
from tests.support.runs import undrawn
from tests.support.task_runs import CHOICES, QUESTIONS, SENTENCES, arguments_of, command, write_tasks
from tfbert.bert.models import TFBertForMultipleChoice, TFBertForSequenceClassification, TFBertForTokenClassification
from tfbert.model.head import save_pretrained
from tfbert.tokens.host import read_tokenizer

SLOW = pytest.mark.slow
TWO = ("roberta", pytest.param("camembert", marks=SLOW))


@pytest.fixture(scope="module", params=TWO)
def corpus(request, tmp_path_factory):
    """Data, and a pretrained `model` with the tokenizer of the kind; its own type of tokens is the only one."""
    directory = tmp_path_factory.mktemp(request.param)
    write_tasks(directory)
    lines = [f"{i % 2},{a} film,the plot</s> is {a}" for i, a in enumerate(["good", "slow", "bad", "dull"] * 5)]
    (directory / "pairs.csv").write_text("\n".join(["label,first,second", *lines]) + "\n")
    KINDS[request.param](directory / "source")
    tokenizer = read_tokenizer(directory / "source")
    options = {"vocab_size": tokenizer.vocab_size, "num_hidden_layers": 1, "pad_token_id": tokenizer.pad_id}
    save_pretrained(tiny_bert(dropout=0.1, **options), tokenizer, directory / "model")
    return directory


def run(corpus, task):
    """The directory of two updates."""
    directory = corpus / task
    own = [argument for argument in arguments_of(corpus, task, task) if not argument.startswith(("--model", "--vocab"))]
    command(*own, f"--model={corpus / 'model'}", "--max_steps=2", "--max_seq_length=48")
    return directory


def inputs_of(tokens):
    inputs = {name: tf.constant(tokens[name]) for name in ("input_ids", "attention_mask")}
    return inputs | {"token_type_ids": tf.zeros_like(inputs["input_ids"])}


def test_pairs(corpus):
    out, file = corpus / "pairs", corpus / "pairs.csv"
    files = {"model": corpus / "model", "train_file": file, "validation_file": file, "output_dir": out}
    options = {"text_column": ("first", "second"), "max_seq_length": 24, "global_batch_size": 8, "max_steps": 3}
    with undrawn():
        trained = tfbert.finetune(**files, **options, gradient_accumulation_steps=2, learning_rate=1e-3)
    again = command("--mode=evaluate", f"--model={out}", f"--validation_file={file}")
    assert again["eval_accuracy"] == trained["eval_accuracy"]
    pairs = [("a good film", "the plot </s> is long, " * 9), ("<s>", "é"), ("", "x")]
    found = tfbert.load(out)(pairs, top_k=None)
    reference, model = AutoTokenizer.from_pretrained(out), TFBertForSequenceClassification.from_pretrained(out)
    assert reference.pad_token == "<pad>"
    tokens = read_tokenizer(out).encode(*zip(*pairs, strict=True), max_seq_length=24)
    for i, (pair, answer) in enumerate(zip(pairs, found, strict=True)):
        ids = tokens.flat[tokens.row_splits[i] : tokens.row_splits[i + 1]]
        theirs = reference(*pair, truncation=True, max_length=24)["input_ids"]
        assert theirs == ids.tolist() or "</s>" in pair[1] or "<s>" in pair[0]  # A unigram's piece, see `host`.
        want = tf.nn.softmax(model(inputs_of({"input_ids": [ids], "attention_mask": [np.ones_like(ids)]})).logits)[0]
        expected = {str(i): float(share) for i, share in enumerate(want)}
        assert {each["label"]: each["score"] for each in answer} == pytest.approx(expected, abs=1e-5)
    command("--mode=predict", f"--model={out}", f"--input_file={file}", f"--output_file={out / 'p.jsonl'}")
    assert len((out / "p.jsonl").read_text().splitlines()) == 20


@SLOW
def test_tags(corpus):
    """By default tasks/token_classification has those of WordPiece, tokens/test_host.py words of this tokenizer."""
    out = run(corpus, SENTENCES)
    model = tfbert.load(out)
    words = ["film,", "</s>", "plôt", "cast"]
    reference = AutoTokenizer.from_pretrained(out, add_prefix_space=True)
    tokens = reference(["film", ",", "<", "/", "s", ">", "plôt", "cast"], is_split_into_words=True)
    inputs = inputs_of({name: [tokens[name]] for name in ("input_ids", "attention_mask")})
    logits = TFBertForTokenClassification.from_pretrained(out)(inputs).logits[0]
    firsts = [tokens.word_ids().index(word) for word in range(8)]
    tags = [model.label_names[int(tf.argmax(logits[first]))] for first in firsts]
    text = "film, </s> plôt cast"
    found = model(text)
    assert [entity["word"] for entity in found] == [text[entity["start"] : entity["end"]] for entity in found]
    begins = sum(tag.startswith("B-") or (tag != "O" and tags[i - 1] == "O") for i, tag in enumerate(tags))
    assert len(found) >= begins > 0 or not found
    assert model(["film", ",", "<", "/", "s", ">", "plôt", "cast"]) is not None and model(words) is not None


@SLOW
def test_answers(corpus):
    """By default tasks/question_answering has those of WordPiece, tokens/test_host.py the places of this tokenizer."""
    out = run(corpus, QUESTIONS)
    context = "Ella   sang, and\n then  élan </s> left. " * 9
    found = tfbert.load(out)([{"question": "Who sang </s>?", "context": context}] * 2)
    assert found[0] == found[1] and found[0]["answer"] == context[found[0]["start"] : found[0]["end"]]
    assert found[0]["answer"] == found[0]["answer"].strip()


@SLOW
def test_choices(corpus):
    """By default those of WordPiece are in tasks/multiple_choice, pairs of this tokenizer above."""
    out = run(corpus, CHOICES)
    asked = {"context": "It rained all day.", "question": "What then?", "choices": ["He left", "a film", "x"]}
    answer = tfbert.load(out)(asked, top_k=None)
    reference = AutoTokenizer.from_pretrained(out)
    seconds = [f"{asked['question']} {choice}" for choice in asked["choices"]]
    tokens = reference([asked["context"]] * 3, seconds, padding=True, return_tensors="np")
    inputs = {name: value[None] for name, value in inputs_of(tokens).items()}
    want = tf.nn.softmax(TFBertForMultipleChoice.from_pretrained(out)(inputs).logits)[0].numpy()
    assert [each["score"] for each in sorted(answer, key=lambda each: each["index"])] == pytest.approx(want, abs=1e-5)
    assert json.loads((out / "tokenizer_config.json").read_text())["split_special_tokens"]


TASKS = ["pairs", *(pytest.param(name, marks=SLOW) for name in (SENTENCES, QUESTIONS, CHOICES))]


@pytest.mark.parametrize("task", TASKS)
def test_an_export_takes_token_ids_and_says_so(corpus, task, tmp_path, logged):
    source = corpus / task
    if not source.exists():
        pytest.skip("needs the test that trains it")
    command("--mode=export", f"--model={source}", f"--output_dir={tmp_path / 'e'}")
    line = "The export takes token ids: its graph does not hold the tokenizer, whose files lie beside it."
    assert logged().count(line) == 1
    module = tf.saved_model.load(str(tmp_path / "e"))
    assert module.signatures.keys() == {"serving_default", "token_ids"}
    tokens = AutoTokenizer.from_pretrained(tmp_path / "e")(["a film"], ["the plot"], return_tensors="np")
    inputs = {name: tf.cast(value, tf.int32) for name, value in inputs_of(tokens).items()}
    found = module.signatures["serving_default"](**inputs)
    assert found["error"].numpy().tolist() == [b""]
    if task == "pairs":
        want = TFBertForSequenceClassification.from_pretrained(source)(inputs).logits
        assert found["logits"].numpy() == pytest.approx(want.numpy(), abs=1e-6)
