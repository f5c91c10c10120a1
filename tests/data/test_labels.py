"""Labels as written: those that stand for none, alike in every format; numbers, where a user says what they are."""

import dataclasses
import json

import pyarrow
import pytest
from pyarrow import parquet

from tests.support.labelled import json_lines, tsv, write_rows
from tests.support.refusals import refused
from tests.support.saved_models import model_with
from tfbert import Config, DataConfig, ModelConfig, OutputConfig, PredictConfig, UsageError
from tfbert.data.files import read_file
from tfbert.data.labels import MARKS, NAMES_OR_MISSING, stand_for_none
from tfbert.modes.predict import labelled_sets
from tfbert.tasks.classification.classification import read_labelled
from tfbert.tasks.tables import load_data
from tfbert.tasks.token_classification.token_classification import TokenClassification

# --- Labels that stand for none --------------------------------------------------------------------------------------


FORMATS = ["a.tsv", "a.csv", "a.tsv.gz", "a.jsonl", "a.parquet"]


# pandas.io.parsers.readers.read_csv, na_values, of pandas 2.2.
OF_PANDAS = " |#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|None|n/a|nan|null"


OTHERS = ["NaT", "\\N", "(null)", "<null>", "[NULL]", "#VALUE!", "#DIV/0!", "#NAME?", "#WERT!", "Err:502"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_label_that_stands_for_none_is_refused_in_every_format(tmp_path, name):
    for label in [*OF_PANDAS.split("|"), *OTHERS, "NAN", " N/A ", "", None]:
        path, said = write_rows(tmp_path / name, ["0", "1", label]), rf"Received: .* in .*{name}, (line [34]|row 3)\."
        with refused(rf"needs a label\. {said}") as caught:
            read_file(path)
        assert ("--task=classification" in str(caught.value)) == ((label or "").strip() in NAMES_OR_MISSING), label


@pytest.mark.parametrize("name", FORMATS)
def test_names_of_classes(tmp_path, name):
    labels = ["none", "NONE", "Null", "na", "nano", "-", "unknown", "(none)", "#wow!", "#WOW", "N"]
    assert read_file(write_rows(tmp_path / name, labels)).labels == labels


@pytest.mark.parametrize("name", FORMATS)
def test_words_are_classes_where_the_task_says_so_and_nan_never_is(tmp_path, name):
    path = write_rows(tmp_path / name, ["None", "NA", "favor"])
    assert load_data(DataConfig(train_file=path, task="classification")).task.label_names == ("NA", "None", "favor")
    with pytest.raises(UsageError, match="'None', which stands for a missing one"):
        load_data(DataConfig(train_file=path))
    path = write_rows(tmp_path / f"b{name}", ["None", "NaN", "favor"])
    with pytest.raises(UsageError, match="'NaN', which stands for a missing one"):
        load_data(DataConfig(train_file=path, task="classification"))


def test_a_saved_models_classes_are_classes(tmp_path):
    config = DataConfig(validation_file=write_rows(tmp_path / "a.tsv", ["None", "favor"]))
    assert read_labelled(config, ("none", "favor"))["eval"].labels == ["None", "favor"]
    with pytest.raises(UsageError, match="'None', which stands for a missing one"):
        read_labelled(config, ("against", "favor"))
    path = write_rows(tmp_path / "b.tsv", ["NaN", "favor"])
    assert read_labelled(DataConfig(validation_file=path), ("nan", "favor"))["eval"].labels[0] == "NaN"


NONE = [  # What stands for none among the labels of a whole set.
    ("0 1 2 -1", "-1"),  # SNLI, as `datasets` has it.
    ("0.0 1.0 2.0 -1.0", "-1.0"),
    ("0 -1", ""),  # There must be two classes.
    ("3 -1", ""),
    ("-1", "-1"),  # The test sets of GLUE.
    ("-1 1 2 3", "-1"),
    ("-1 yes no", "-1"),
    ("-1 0 1", ""),  # A sentiment.
    ("-1 1", ""),  # Of support-vector machines.
    ("-1 +1", ""),
    ("-1 -2 0 1", ""),
    ("-1 0.5 3", ""),  # Scores.
    ("- entailment neutral", "-"),
    ("- 0 1", "-"),
    ("- -1 0 2", "- -1"),
    ("-- \u2013 a b", "-- \u2013"),
    ("- 1.5 2.5", "-"),
    ("- neutral", "-"),  # SNLI, where annotators found no consensus.
    ("-", "-"),
    ("- +", ""),
    ("- + 0", ""),
    (". ?", ""),
    ("? a b", ""),
    (", . -", ""),
    ("\N{SLIGHTLY SMILING FACE} -", ""),
    ("a b", ""),
]


@pytest.mark.parametrize("labels, none", NONE)
def test_what_stands_for_none_is_decided_by_the_whole_set(labels, none):
    assert stand_for_none(set(labels.split())) == set(none.split())
    assert stand_for_none(set(labels.split()), set(labels.split())) == set()
    unknown = {label for label in labels.split() if label in ("-1", "-1.0") or label in MARKS}
    assert stand_for_none(set(labels.split()), {"other"}) == unknown, "a model's classes are known"


MARKED = [
    ([0, 1, 2, -1], "'-1', which stands for a missing one beside '0', '1', '2' in"),
    (["no", "yes", "-", "no"], "'-', which stands for a missing one beside 'no', 'yes' in"),
    ([1, -1, 0, 1], ("-1", "0", "1")),
    ([1, -1, 1, -1], ("-1", "1")),
    (["+", "-", "+", "-"], ("+", "-")),
]


@pytest.mark.parametrize("labels, expected", MARKED)
def test_every_file_of_the_same_rows_means_the_same(tmp_path, labels, expected):
    """tests/data/test_given_kinds.py has tables in memory, which are read as a file is."""
    for form in ("a.csv", "a.jsonl", "a.parquet"):
        config = DataConfig(**dict.fromkeys(("train_file", "validation_file"), write_rows(tmp_path / form, labels)))
        if isinstance(expected, tuple):
            data = load_data(config)
            assert data.task.label_names == expected, form
            assert data.train.labels.tolist() == [expected.index(str(label)) for label in labels], form
            doubt = "-1, the only label below 0, is taken as a class (1 example); drop these rows if it stands for a"
            assert any(doubt in note for note in data.notes) == (expected == ("-1", "0", "1")), form
            continue
        with refused(f"^Every row needs a label. Received: {expected} ") as caught:
            load_data(config)
        assert "if it is a class, name all classes with" in str(caught.value), form
        data = load_data(dataclasses.replace(config, skip_bad_rows=True))
        assert len(data.train) == len(data.validation["validation"]) == 3 and "-" not in "".join(data.task.label_names)
        assert any("1 of 4 rows skipped; the first: Every row needs a label" in note for note in data.notes), form
        names = tuple(sorted({str(label) for label in labels}))
        assert load_data(dataclasses.replace(config, label_names=names)).task.label_names == names, form


def test_a_zero_is_one_class_whatever_sign_rounding_left_it(tmp_path):
    for form in ("a.csv", "a.jsonl", "a.parquet"):
        data = load_data(DataConfig(train_file=write_rows(tmp_path / form, [-1.0, -0.0, 0.0, 1.0])))
        assert (data.task.label_names, data.train.labels.tolist()) == (("-1", "0", "1"), [0, 1, 1, 2]), form
    mixed = write_rows(tmp_path / "b.csv", ["-0", "0", "n.d."])
    assert any("write one number in two ways" in note for note in load_data(DataConfig(train_file=mixed)).notes)


def test_other_sets_are_read_as_the_training_data(tmp_path):
    """A small set may lack what shows that -1 and a sign are classes."""
    train = write_rows(tmp_path / "train.csv", [-1, 0, 1, 1])
    few = write_rows(tmp_path / "few.csv", [-1, 0])
    data = load_data(DataConfig(train_file=train, validation_file=few))
    assert data.validation["validation"].labels.tolist() == [0, 1]
    other = write_rows(tmp_path / "b.csv", [0, 1])
    named = DataConfig(train_file=train, validation_file=other, label_names=("-1", "0", "1"))
    assert load_data(named).validation["validation"].labels.tolist() == [1, 2]
    train = write_rows(tmp_path / "c.csv", [2, 0, 1, 1])
    with pytest.raises(UsageError, match="'-1', which stands for a missing one beside '0' in .*few.csv, line 2"):
        load_data(DataConfig(train_file=train, validation_file=few))
    with pytest.raises(UsageError, match="'-1', which stands for a missing one beside '0' in .*few.csv, line 2"):
        read_labelled(DataConfig(test_file=few), ("0", "1"))
    assert read_labelled(DataConfig(test_file=few), ("-1", "0", "1"))["test"].labels == ["-1", "0"]


def test_minus_one_is_a_number_where_labels_are_measurements(tmp_path):
    for labels, options in (([-1, 0.5, 3], {}), ([-1, 0, 1, 2], {"task": "regression"})):
        path = write_rows(tmp_path / "a.csv", labels)
        other = write_rows(tmp_path / "b.csv", [2, -1, 3])
        data = load_data(DataConfig(train_file=path, validation_file=other, **options))
        assert data.task.name == "regression" and data.train.labels.tolist() == labels
        assert data.validation["validation"].labels.tolist() == [2, -1, 3]
        assert any("-1, the only label below 0, is taken as a number (1 example)" in note for note in data.notes)
    for options in ({}, {"task": "regression"}):
        path = write_rows(tmp_path / "c.csv", [-1, 0.5, "-", 3])
        files = {"train_file": path, "validation_file": path}
        data = load_data(DataConfig(**files, skip_bad_rows=True, **options))
        assert data.train.labels.tolist() == data.validation["validation"].labels.tolist() == [-1, 0.5, 3]
        with pytest.raises(UsageError, match="'-', which stands for a missing one beside '-1', '0.5', '3' in"):
            load_data(DataConfig(**files, **options))
    path = write_rows(tmp_path / "a.csv", [-1, 0, 1, 2])
    assert read_labelled(DataConfig(test_file=path), ())["test"].labels == ["-1", "0", "1", "2"]
    with pytest.raises(UsageError, match="'-1', which stands for a missing one as all labels do"):
        read_labelled(DataConfig(test_file=write_rows(tmp_path / "d.csv", [-1, -1])), ())


# --- What numbers stand for ------------------------------------------------------------------------------------------


MRPC = ("not_equivalent", "equivalent")  # As GLUE numbers them; by alphabet it is the other way round.


def evaluated(path, names, given=(), **data):
    """The class ids of a file's labels, for a model with these names."""
    return labelled_sets(DataConfig(validation_file=path, label_names=given, **data), model_with(names))["eval"].labels


OF_MRPC = [
    ("a.tsv", ["1", "0", "1"]),
    ("b.tsv", ["1.0", "0.0", "1.0"]),
    ("a.jsonl", [1, 0, 1]),
    ("b.jsonl", ["1", "0", "1"]),
    ("c.jsonl", ["equivalent", "not_equivalent", "equivalent"]),
    ("a.parquet", [1, 0, 1]),
    ("b.parquet", [1.0, 0.0, 1.0]),
    ("c.tsv", ["Equivalent", "not_equivalent", "equivalent"]),
]


@pytest.mark.parametrize("file, labels", OF_MRPC)
def test_given_names_say_what_numbers_mean_in_evaluation_and_in_training(file, labels, tmp_path):
    path = write_rows(tmp_path / file, labels)
    assert evaluated(path, ("equivalent", "not_equivalent"), MRPC).tolist() == [0, 1, 0]
    assert evaluated(path, ("Equivalent", "Not_equivalent"), MRPC).tolist() == [0, 1, 0]
    data = load_data(DataConfig(train_file=path, validation_file=path, test_file=path, label_names=MRPC))
    assert data.task.label_names == MRPC
    for part in (data.train, data.validation["validation"], data.test):
        assert part.labels.tolist() == [1, 0, 1]


def test_a_file_of_names_has_one_a_line(tmp_path):
    names = tmp_path / "labels.txt"
    names.write_bytes("\ufeffadmiration\r\nno joy\r\nnone\r\n\r\n".encode())
    path = write_rows(tmp_path / "a.tsv", ["2", "0"])
    data = load_data(DataConfig(train_file=path, label_names=(str(names),)))
    assert data.task.label_names == ("admiration", "no joy", "none")  # Classes without an example are kept,
    assert data.train.labels.tolist() == [2, 0]
    assert any("'no joy' (0)" in note for note in data.notes)  # and named.
    for content, message in (
        ("joy\n\nnone\n", "Received: an empty name in .*, for label 1"),
        ("joy\njoy\n", "Received: 'joy' twice in .*, for label 1"),
        ("joy\n", "two labels or more. Received: 'joy'"),
        ("", "two labels or more"),
    ):
        names.write_text(content)
        with pytest.raises(UsageError, match=message):
            load_data(DataConfig(train_file=path, label_names=(str(names),)))
    with pytest.raises(UsageError, match="valid Unicode. Received: half a surrogate pair in label_names"):
        load_data(DataConfig(train_file=path, label_names=("joy", "\ud83d")))


AB, STARS, WORDS = ("a", "b"), ("1", "2", "3"), ["negative", "positive"]
TO_FILE, TO_FLAG = "or write the names .* into id2label of its config.json", "--label_names with the names"
REFUSED = [  # A file and its labels, the model's, those that are given.
    *((f"a.{e}", [1, 0], MRPC, (), f"2: not_eq.*'1' in .*{TO_FLAG}") for e in ("tsv", "jsonl")),
    ("a.parquet", [1.0, 0.0], MRPC[::-1], (), rf"the model's 2: equivalent, .*'1\.0' in .*{TO_FLAG}"),
    ("a.tsv", [1, 0], ("false", "true"), (), f"the model's 2: false, .*{TO_FLAG}"),
    ("a.tsv", WORDS, ("0", "1"), (), f"model's 2: 0, .*'negative' in .*, {TO_FILE}"),
    ("a.tsv", WORDS, ("LABEL_0", "LABEL_1"), (), f"model's 2: LABEL_0, .*'negative' in .*, {TO_FILE}"),
    ("a.tsv", WORDS, ("0", "1"), ("x", "y"), "names of label_names.* Received: 'negative'"),
    ("a.tsv", WORDS, ("0", "1"), (*WORDS,), "label_names must be the model's 2: 0, .*: 2 names, .* into id2label"),
    ("a.tsv", ["1", "2"], AB, AB, r"names of label_names, or their numbers 0 to 1. Received: '2' in .*, line 3"),
    ("a.tsv", ["1", "-1"], AB, AB, r"Received: '-1', which stands for a missing one .* in .*, line 3"),
    ("a.tsv", ["a", "c"], AB, AB, r"Received: 'c' in .*, line 3"),
    ("a.tsv", ["a", "1"], AB, AB, r"Received: '1' beside names in .*, line 3"),
    ("a.tsv", ["0", "1"], AB, ("a", "b", "c"), r"must be the model's 2: a, b. Received: 3 names, 'a', 'b', 'c'"),
    ("a.tsv", ["2", "1"], STARS, STARS, "clear whether .* Received: '2' in .*, line 2, the name '2' or the id of '3'"),
    ("a.tsv", ["maybe"], AB, (), "the model's 2: a, b. Received: 'maybe' in .*a.tsv, line 2"),
    ("a.tsv", ["0", "1"], ("1", "2"), (), "the model's 2: 1, 2. Received: '0' in .*a.tsv, line 2"),
    ("a.tsv", ["0", "1"], AB, ("a", "d"), r"Received: 2 names, 'a', 'd'. .*, in the order of the data's numbers\.$"),
]


MATCHING = [
    (["b", "a", "b"], AB, (), [1, 0, 1]),
    (["B", "a", "b"], ("A", "b"), (), [1, 0, 1]),
    (["1.0", "0"], ("0", "1"), (), [1, 0]),
    (["0", "1.0"], ("LABEL_0", "LABEL_1"), (), [0, 1]),
    (["1"], ("LABEL_0", "LABEL_1"), (), [1]),
    (["1"], ("0", "1", "2"), (), [1]),
    (["0", "1"], STARS, STARS, [0, 1]),  # Names that are numbers themselves.
    (["3", "1"], STARS, STARS, [2, 0]),
    (["1", "0"], ("0", "1"), ("0", "1"), [1, 0]),
]


@pytest.mark.parametrize("written, names, given, expected", MATCHING)
def test_labels_match_by_name_in_any_case_or_by_number(written, names, given, expected, tmp_path, logged):
    """By number where labels have no names, or a user says which these are."""
    assert evaluated(write_rows(tmp_path / "a.tsv", written), names, given).tolist() == expected
    assert any("which has no names for them" in line for line in logged()) == (names[0] == "LABEL_0")


@pytest.mark.parametrize("file, labels, names, given, message", REFUSED)
def test_what_does_not_fit_is_named(file, labels, names, given, message, tmp_path):
    """Numbers are not paired with names, nor names with numbers."""
    with refused(message):
        evaluated(write_rows(tmp_path / file, labels), names, given)


def rows_with_names(path, labels, names):
    """Parquet as `datasets` writes a column of ids with the names of its classes."""
    about = {"info": {"features": {"label": {"names": list(names), "_type": "ClassLabel"}}}}
    table = pyarrow.table({"text": [f"x{i}" for i in range(len(labels))], "label": labels})
    parquet.write_table(table.replace_schema_metadata({"huggingface": json.dumps(about)}), path)
    return str(path)


@pytest.mark.parametrize("names", [MRPC, ("1", "2"), ("None", "some")])
def test_a_parquet_file_names_its_own_ids(names, tmp_path):
    path = rows_with_names(tmp_path / "a.parquet", [1, 0, 1], names)
    data = load_data(DataConfig(train_file=path, validation_file=path, test_file=path))
    assert data.task.label_names == names, "in the order of the ids"
    for part in (data.train, data.validation["validation"], data.test):
        assert part.labels.tolist() == [1, 0, 1]
    assert evaluated(path, names[::-1]).tolist() == [0, 1, 0], "by name"
    for numbered in (("0", "1"), ("LABEL_0", "LABEL_1")):  # Of a model that was trained on plain ids.
        assert evaluated(path, numbered).tolist() == [1, 0, 1]
    given = load_data(DataConfig(train_file=path, label_names=("no", "yes")))
    assert (given.task.label_names, given.train.labels.tolist()) == (("no", "yes"), [1, 0, 1]), "the user's word counts"
    assert load_data(DataConfig(train_file=path, task="regression")).train.labels.tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("label", [-1, 2])
def test_an_id_without_a_name_is_refused_by_its_row(label, tmp_path):
    path = rows_with_names(tmp_path / "a.parquet", [1, label, 0], MRPC)
    with pytest.raises(UsageError, match=f"one of the 2 that the file names. Received: {label} for .*row 2"):
        load_data(DataConfig(train_file=path))
    assert load_data(DataConfig(train_file=path, skip_bad_rows=True)).train.labels.tolist() == [1, 0]


TAGS = ("O", "I-PER", "B-PER")


@pytest.mark.parametrize("file", ["a.jsonl", "a.parquet", "a.conll"])
def test_tags_as_numbers(file, tmp_path):
    rows = [{"tokens": ["Ada", "Byron", "wrote"], "ner_tags": [2, 1, 0]}, {"tokens": ["Bob"], "ner_tags": [2]}]
    path = tmp_path / file
    if file == "a.parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("Ada 2\nByron 1\nwrote 0\n\nBob 2\n\n" if file == "a.conll" else json_lines(*rows))
    config = DataConfig(train_file=str(path), task="token_classification", label_names=TAGS)
    data = load_data(config)
    assert data.task.label_names == TAGS and data.task.has_entities
    assert data.train.labels.tolist() == [2, 1, 0, 2]
    model = dataclasses.replace(model_with(("a", "b")), task=TokenClassification(("O", "B-PER", "I-PER")))
    config = DataConfig(validation_file=str(path), label_names=TAGS)
    assert labelled_sets(config, model)["eval"].labels.tolist() == [1, 2, 0, 1]
    with pytest.raises(UsageError, match="A tag must be one of .* Received: '2'"):
        labelled_sets(dataclasses.replace(config, label_names=()), model)
    with pytest.raises(UsageError, match="names of label_names.* Received: '2' in .*a"):
        labelled_sets(dataclasses.replace(config, label_names=("O", "B-PER")), model)


def test_where_the_option_has_no_effect_it_is_refused(tmp_path):
    path, saved = write_rows(tmp_path / "a.tsv", ["0", "1"]), {"model": ModelConfig(model_name_or_path="somewhere")}
    given, predicted = {"label_names": ("a", "b")}, PredictConfig(input_file=path)
    named = saved | {"data": DataConfig(**given)}
    for parts, message in (
        ({"data": DataConfig(train_file=path, task="regression", **given)}, "label_names is for classification, "),
        ({"data": DataConfig(train_file=path, label_names=("labels.txt",))}, "or a file .*labels.txt"),
        ({"data": DataConfig(**given)}, "in your own data"),
        (named | {"mode": "predict", "predict": predicted}, "label_names has no effect with mode=predict"),
        (named | {"mode": "export", "output": OutputConfig(output_dir="x")}, "label_names has no effect with mode=ex"),
    ):
        with pytest.raises(UsageError, match=message):
            Config(**parts)


@pytest.mark.parametrize(("train", "other", "is_told"), [("ab", "01", True), ("ab", "ac", False), ("01", "12", False)])
def test_ids_where_names_are_expected_name_the_flag(tmp_path, train, other, is_told):
    for name, labels in (("train", train), ("dev", other)):
        (tmp_path / f"{name}.tsv").write_text(tsv(*(f"x {i}\t{i}" for i in labels)))
        (tmp_path / f"{name}.conll").write_text("".join(f"x {i}\n" for i in labels + 3 * labels[::-1]))
    for ending in ("tsv", "conll"):
        files = {"train_file": f"{tmp_path}/train.{ending}", "validation_file": f"{tmp_path}/dev.{ending}"}
        with pytest.raises(UsageError, match="Correct it, or add it") as caught:
            load_data(DataConfig(**files, task="token_classification" if ending == "conll" else "auto"))
        assert ("pass --label_names with the names of 0, 1, ..." in str(caught.value)) is is_told
