"""Words are tagged: the command's training, evaluation and prediction agree, in every format; and with transformers."""

import dataclasses
import gzip
import json

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file
from transformers import BertTokenizerFast

from tests.support.refusals import refused
from tests.support.saved_models import model_with, read_json
from tests.support.task_runs import SENTENCES, arguments_of, command, config_of, evaluate, predict, write_tasks
from tests.support.texts import VOCAB
from tests.support.transformers_4 import transformers_4
from tfbert import Config, DataConfig, ModelConfig, PredictConfig, TaggingConfig, TrainingConfig
from tfbert.config.tasks import TaskOptions
from tfbert.data.reading import BadRows
from tfbert.modes.load import load_trained_model
from tfbert.modes.predict import labelled_sets
from tfbert.tasks.registry import detect_task, entry_of
from tfbert.tasks.tables import load_data
from tfbert.tasks.token_classification.tagged import read_sentences
from tfbert.tasks.token_classification.token_classification import SentenceExamples, TokenClassification
from tfbert.tokens.tokenizer import BertTokenizer

NAMES = ("O", "B-PER", "B-WORK", "I-WORK")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A directory with the data and a model trained on it in `run`; and the results of the training."""
    directory = tmp_path_factory.mktemp("tagging")
    write_tasks(directory)
    return directory, command(*arguments_of(directory, SENTENCES, "run", is_small=True))


@pytest.fixture(scope="module")
def tagged(trained):
    """The validation file with a column of predictions."""
    return predict(trained[0], trained[0] / "dev.conll", "dev-tagged.conll")


def test_evaluation_of_the_saved_model_is_that_of_training(trained):
    directory, results = trained
    found = evaluate(directory, "dev.conll")
    names = ("f1", "precision", "recall", "accuracy", "loss")
    assert [found[f"eval_{name}"] for name in names] == pytest.approx([results[f"eval_{name}"] for name in names])
    assert 0.5 < found["eval_accuracy"] <= 1 and found["eval_samples"] == 13
    assert set(found["eval_per_type"]) == {"PER", "WORK"}
    assert json.loads((directory / "evaluated" / "eval_results.json").read_text()) == found


def test_conll_out_is_the_input_with_a_column_more(trained, tagged):
    directory, results = trained
    lines = (directory / "dev.conll").read_text().rstrip("\n").split("\n")
    found = tagged.read_text().removesuffix("\n").split("\n")
    assert [line.rpartition("\t")[0] for line in found] == lines
    cells = [line.split("\t") for line in found if line]
    assert {said for *_, said in cells} <= set(NAMES)
    assert np.mean([gold == said for *_, gold, said in cells]) == pytest.approx(results["eval_accuracy"])
    # Of a compressed file with another line end and a document's start, likewise.
    source = directory / "in.txt.gz"
    source.write_bytes(gzip.compress(b"-DOCSTART- -X- O\r\n\r\ngood A O\r\nfilm B B-WORK\r\n\r\n\r\ncast C O"))
    lines = gzip.decompress(predict(directory, source, "out.txt.gz").read_bytes()).decode().split("\n")
    assert [line.rpartition(" ")[0] for line in lines] == ["good A O", "film B B-WORK", "", "cast C O", ""]


def test_lists_of_words_get_tags_and_entities(trained, tagged, write):
    directory, _ = trained
    table = read_sentences(tagged, DataConfig(input_format="conll"))
    words, tags = table.words, table.tags
    source = write("words.jsonl", [{"guid": f"s{i}", "tokens": own} for i, own in enumerate(words)])
    rows = read_json(predict(directory, source, "words-out.jsonl"))
    assert [row["id"] for row in rows] == [f"s{i}" for i in range(13)]
    assert [row["tags"] for row in rows] == tags
    entities = [entity | {"row": i} for i, row in enumerate(rows) for entity in row["entities"]]
    starts = {(i, at) for i, own in enumerate(tags) for at, tag in enumerate(own) if tag.startswith("B-")}
    assert starts <= {(entity["row"], entity["start"]) for entity in entities}
    for entity in entities:
        own = slice(entity["start"], entity["end"])
        assert entity["word"] == " ".join(words[entity["row"]][own]) and 0.25 < entity["score"] <= 1
        assert {tag[2:] for tag in tags[entity["row"]][own]} == {entity["entity_group"]}
    table = predict(directory, source, "words-out.tsv").read_text().splitlines()
    assert table[0] == "id\ttype\ttext\tstart\tend\tscore"
    expected = [[f"s{e['row']}", e["entity_group"], e["word"], str(e["start"]), str(e["end"])] for e in entities]
    assert [line.split("\t")[:5] for line in table[1:]] == expected


WORDS = "good\nfilm\n\ncast\n"
LINE = "reading {} as plain texts, one a line; --input_format=conll reads words, one a line"


MAYBE_WORDS = [
    (WORDS, {}, True),
    ("good\nfilm\ngood cast\n", {}, True),
    ("good film\n\ngood cast\n", {}, True),
    ("good film\ngood cast\nfilm\n", {}, False),
    (WORDS, {"input_format": "text"}, False),
    (WORDS, {"input_format": "conll"}, False),
]


@pytest.mark.parametrize(("content", "options", "is_said"), MAYBE_WORDS)
def test_words_without_tags_are_not_taken_for_texts_in_silence(write, content, options, is_said):
    asked = PredictConfig(input_file=write("maybe.txt", content), output_file="out.jsonl")
    model = ModelConfig(model_name_or_path="m")
    config = Config(mode="predict", model=model, predict=asked, data=DataConfig(**options))
    (job,) = entry_of(SENTENCES).open_jobs(config)
    model = dataclasses.replace(model_with(NAMES), task=TokenClassification(NAMES), tokenizer=BertTokenizer(VOCAB))
    items = list(job.items(entry_of(SENTENCES).items(model), BadRows(False)))
    assert job.doubts(items) == [LINE.format(asked.input_file)] * is_said
    assert len(items) == (2 if "conll" in options.values() else len(content.splitlines()))


def test_transformers_loads_it_by_its_names_and_gives_the_same_logits(trained, tagged):
    directory, _ = trained
    config = json.loads((directory / "run" / "config.json").read_text())
    assert config["architectures"] == ["BertForTokenClassification"]
    assert tuple(config["id2label"].values()) == NAMES
    names = set(load_file(directory / "run" / "model.safetensors"))
    assert {"classifier.weight", "classifier.bias"} <= names and not any("pooler" in name for name in names)
    theirs = transformers_4("TFBertForTokenClassification")
    model, loading = theirs.from_pretrained(directory / "run", output_loading_info=True)
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    tokenizer = BertTokenizerFast.from_pretrained(directory / "run")
    table = read_sentences(tagged, DataConfig(input_format="conll"))
    whole = [i for i, row in enumerate(tokenizer(table.words, is_split_into_words=True).input_ids) if len(row) <= 16]
    words, tags = ([column[i] for i in whole] for column in (table.words, table.tags))
    words, tags = [*words, ["films", "was", "é", "Good"], ["plot"]], sum(tags, [])
    expected = []
    for own in words:
        inputs = tokenizer(own, is_split_into_words=True, return_tensors="tf")
        ids, logits = inputs.word_ids(0), model(inputs).logits.numpy()[0]
        expected += [logits[ids.index(i)] for i in range(len(own))]
    assert [NAMES[row.argmax()] for row in expected[: len(tags)]] == tags and len(tags) > 20
    config = config_of("--mode=predict", f"--model={directory / 'run'}", f"--input_file={directory / 'dev.conll'}")
    own = load_trained_model(config)
    examples = SentenceExamples(name="x", words=words, labels=None)
    predictor = own.predictor(tf.distribute.OneDeviceStrategy("CPU:0"), 4)
    np.testing.assert_allclose(own.task.predict(predictor, own.encode(examples), examples.name), expected, atol=1e-5)


# --- What is refused -----------------------------------------------------------------------------------------------

BAD_DATA = {
    "one tag": ("a.conll", "a\tO\n\nb\tO\n", [], r"two tags or more\. Received: \['O'\]\. Check --label"),
    "a delimiter": ("a.conll", "a\tO\n\n", ["--delimiter=;"], r"A delimiter is of tables.*delimiter=';'"),
}


@pytest.mark.parametrize(("name", "content", "options", "message"), BAD_DATA.values(), ids=BAD_DATA)
def test_bad_training_data(write, name, content, options, message):
    config = detect_task(config_of("--train_file=" + write(name, content), *options))
    assert config.data.task == SENTENCES, "what the file is for is beyond doubt"
    with refused(message):
        load_data(config.data)


def test_a_tag_that_training_lacks_and_one_that_cannot_follow(write):
    train = write("train.conll", "a\tB-X\nb\tI-X\n\nc\tB-X\n\nd\tO\n\nd\tB-X\n\n")
    new = write("new.conll", "a\tB-X\nb\tB-NEW\n\n")
    with refused(r"one of the training data's 3: 'O', .*Received: 'B-NEW' in .*line 1"):
        load_data(DataConfig(task=SENTENCES, train_file=train, validation_file=new))
    odd = write("odd.conll", "a\tB-X\nb\tI-X\n\nb\tI-X\n\na\tB-X\n\n")
    config = DataConfig(task=SENTENCES, train_file=train, validation_file=odd)
    assert any(note.startswith("warning: ") and "1 tag out of place" in note for note in load_data(config).notes)
    with refused(r"With strict_entities.*1 tag .* IOB2, the first 'I-X' at the start in .*4"):
        load_data(config, TaskOptions(tagging=TaggingConfig(strict_entities=True)))


SCHEMES = {
    "IOB1": ("a\tI-X\nb\tI-X\n\na\tI-X\nb\tB-X\n\n", "tags are IOB1, converted to IOB2"),
    "mixed": ("a\tNOUN\nb\tB-X\n\n", "tags have no prefixes, although B- occur too: 'NOUN' has no prefix"),
}


@pytest.mark.parametrize(("content", "line"), SCHEMES.values(), ids=SCHEMES)
def test_the_log_names_the_scheme_of_each_file(write, content, line):
    train, other = write("train.conll", content), write("dev.conll", content)
    notes = load_data(DataConfig(task=SENTENCES, train_file=train, validation_file=other)).notes
    found = [note for note in notes if note.startswith((f"{train}: tags", f"{other}: tags"))]
    assert found == [f"{train}: {line}", f"{other}: {line}"]


OPTIONS = {
    "doc_stride": (["--doc_stride=4"], r"doc_stride is for question_answering\. Received: task=.*doc_stride=4"),
    "squad": (["--input_format=squad", f"--task={SENTENCES}"], r"are read from conll, jsonl, parquet\. .*'squad'"),
    "a table": (["--input_format=conll", "--task=classification"], r"read from tsv, csv, .*input_format='con"),
}


@pytest.mark.parametrize(("options", "message"), OPTIONS.values(), ids=OPTIONS)
def test_bad_options_of_training(trained, options, message):
    with refused(message):
        command(*arguments_of(trained[0], SENTENCES, "never"), *options)
    assert not (trained[0] / "never").exists()


USES = {
    "a format of answers": ("dev.conll", "x.jsonl", ["--output_format=squad"], r"conll, jsonl, tsv or csv\. .*'squad'"),
    "an ending": ("dev.conll", "x.xls", [], r"x\.xls.* ends in \.conll, \.jsonl, \.tsv or \.csv"),
    "conll of texts": ("plain.txt", "x.conll", [], r"plain\.txt, .* read as texts\. .*--input_format=conll"),
    "conll of a table": ("table.csv", "x.conll", [], r"table\.csv, which is read as texts\. Pass --output_form"),
    "conll of rows": ("words.jsonl", "x.conll", [], r"with one more column\. .*read as jsonl"),
    "ids in conll": ("dev.conll", "x.jsonl", ["--id_column=1"], r"id_column='1' for .* columns none.*rows are numb"),
    "glue": ("dev.conll", "", ["--glue_task=sst2"], r"takes none of these options. Received: glue_task='sst2'"),
    "a bad line": ("bad.conll", "x.conll", [], r"2 columns separated by tabs.*line 2\. .*Or pass --skip_bad_rows"),
}


@pytest.mark.parametrize(("source", "output", "options", "message"), USES.values(), ids=USES)
def test_bad_uses_of_a_model(trained, source, output, options, message):
    directory, _ = trained
    (directory / "plain.txt").write_text("good film\n")
    (directory / "table.csv").write_text("text\ngood film\n")
    (directory / "words.jsonl").write_text('{"tokens": ["good", "film"]}\n')
    (directory / "bad.conll").write_text("good\tO\nbad\n\n")
    given = [f"--input_file={directory / source}", *([f"--output_file={directory / output}"] if output else [])]
    with refused(message):
        command("--mode=predict", f"--model={directory / 'run'}", *given, *options)
    assert not list(directory.glob("*x.*"))


def test_a_model_of_words_is_evaluated_on_words(trained):
    model = dataclasses.replace(model_with(NAMES), task=TokenClassification(NAMES))
    with refused("which is for question answering, and a model for token classification"):
        labelled_sets(DataConfig(validation_file=str(trained[0] / "dev.json")), model)


@pytest.mark.parametrize("all_tokens", [False, True])
def test_balanced_weights_count_what_the_loss_counts(all_tokens, tokenizer):
    """The weights of each class sum to the same: of words, or of all their pieces."""
    task = TokenClassification(("O", "B-PER"), label_all_tokens=all_tokens)
    words = [["a", "b", "Wolfeschlegelsteinhausen", "a"], ["b", "a", "Blythe-Featherstonhaugh"]]
    labels = np.array([0, 0, 1, 0, 0, 0, 1], np.int32)
    examples = SentenceExamples(name="train", words=words, labels=labels)
    encoded = task.encode(examples, tokenizer, 64, TrainingConfig(class_weights="balanced"))
    is_counted = encoded.weights > 0
    counts = np.bincount(encoded.labels[is_counted], minlength=2)
    assert (counts[1] > 10) if all_tokens else counts.tolist() == [5, 2]
    expected = counts.sum() / (2 * counts)
    np.testing.assert_allclose(encoded.weights[is_counted], expected[encoded.labels[is_counted]], rtol=1e-6)
