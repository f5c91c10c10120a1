"""Labels that stand for none: refused alike in every format, classes where that was said."""

import dataclasses

import pytest

from tests.support.labelled import write_rows
from tfbert.config.data import DataConfig
from tfbert.data.files import read_file
from tfbert.data.labels import MARKS, NAMES_OR_MISSING, stand_for_none
from tfbert.errors import UsageError
from tfbert.tasks.classification.classification import read_labelled
from tfbert.tasks.tables import load_data

FORMATS = ["a.tsv", "a.csv", "a.tsv.gz", "a.jsonl", "a.parquet"]


# pandas.io.parsers.readers.read_csv, na_values, of pandas 2.2.
OF_PANDAS = " |#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|None|n/a|nan|null"


OTHERS = ["NaT", "\\N", "(null)", "<null>", "[NULL]", "#VALUE!", "#DIV/0!", "#NAME?", "#WERT!", "Err:502"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_label_that_stands_for_none_is_refused_in_every_format(tmp_path, name):
    for label in [*OF_PANDAS.split("|"), *OTHERS, "NAN", " N/A ", "", None]:
        path, said = write_rows(tmp_path / name, ["0", "1", label]), rf"Received: .* in .*{name}, (line [34]|row 3)\."
        with pytest.raises(UsageError, match=rf"needs a label\. {said}") as caught:
            read_file(path)
        assert "\n" not in str(caught.value), label
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
    path = write_rows(tmp_path / "a.tsv", ["None", "favor"])
    config = DataConfig(validation_file=path)
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


@pytest.mark.parametrize(
    "labels, expected",
    [
        ([0, 1, 2, -1], "'-1', which stands for a missing one beside '0', '1', '2' in"),
        (["no", "yes", "-", "no"], "'-', which stands for a missing one beside 'no', 'yes' in"),
        ([1, -1, 0, 1], ("-1", "0", "1")),
        ([1, -1, 1, -1], ("-1", "1")),
        (["+", "-", "+", "-"], ("+", "-")),
    ],
)
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
        with pytest.raises(UsageError, match=f"^Every row needs a label. Received: {expected} ") as caught:
            load_data(config)
        assert "if it is a class, name all classes with" in str(caught.value), form
        data = load_data(dataclasses.replace(config, skip_bad_rows=True))
        assert len(data.train) == len(data.validation["validation"]) == 3 and "-" not in "".join(data.task.label_names)
        assert any("1 of 4 rows skipped; the first: Every row needs a label" in note for note in data.notes), form
        names = tuple(sorted({str(label) for label in labels}))
        assert load_data(dataclasses.replace(config, label_names=names)).task.label_names == names, form


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
        data = load_data(
            DataConfig(train_file=path, validation_file=write_rows(tmp_path / "b.csv", [2, -1, 3]), **options)
        )
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
    held_back = DataConfig(test_file=write_rows(tmp_path / "d.csv", [-1, -1]))
    path = write_rows(tmp_path / "a.csv", [-1, 0, 1, 2])
    assert read_labelled(DataConfig(test_file=path), ())["test"].labels == ["-1", "0", "1", "2"]
    with pytest.raises(UsageError, match="'-1', which stands for a missing one as all labels do"):
        read_labelled(held_back, ())
