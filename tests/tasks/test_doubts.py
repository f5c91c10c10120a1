"""What looks like an accident in data is said once, in one line each, with its numbers."""

import pytest

from tests.support.refusals import refused
from tfbert import DataConfig
from tfbert.tasks.tables import load_data


def warnings_of(tmp_path, train, validation=(), test=(), **options):
    """What is said of these (text, label) rows."""
    files = {}
    for name, rows in (("train", train), ("validation", validation), ("test", test)):
        if rows:
            files[f"{name}_file"] = str(tmp_path / f"{name}.tsv")
            lines = ["\t".join(row) for row in ([*["text", "text_pair"][: len(rows[0]) - 1], "label"], *rows)]
            (tmp_path / f"{name}.tsv").write_text("\n".join(lines))
    notes = load_data(DataConfig(**files, **options)).notes
    assert all("\n" not in note for note in notes)
    return [note.replace(f"{tmp_path}/", "") for note in notes if note.startswith("warning: ")]


def rows(**counts):
    return [(f"{label} {i}", label.replace("_", " ")) for label, count in counts.items() for i in range(count)]


def test_nothing_is_said_of_data_that_is_right(tmp_path):
    assert warnings_of(tmp_path, rows(good=5, bad=5), [("else", "good")], [("more", "bad")]) == []


def test_classes_that_differ_in_case_or_space_only(tmp_path):
    train = rows(Positive=6, positive=5, POSITIVE=7, negative=1200, not_sure=5)
    train += [(f"x{i}", "not  sure") for i in range(5)]
    assert warnings_of(tmp_path, train) == [
        "warning: classes that differ only in case or space, or write one number in two ways: "
        "'POSITIVE' (7 examples), 'Positive' (6 examples), 'positive' (5 examples); "
        "'not  sure' (5 examples), 'not sure' (5 examples)"
    ]

    for one, other in (("STRASSE", "straße"), ("café", "cafe\u0301"), ("a b", "a\u00a0b"), ("1", "01"), ("1", "+1")):
        (line,) = warnings_of(tmp_path, rows(**{one: 5, other: 5, "else": 5}))
        assert repr(one) in line and repr(other) in line and "else" not in line


BUT_FOR_SOME = [
    (["1.5", "2.5", "3,5"], "3 of 9 that are not, first '3,5' in train.tsv, line 4", ""),
    (["3", "4.5", "2", "n.d."], "3 of 12 that are not, first 'n.d.' in train.tsv, line 5", ""),
    (["1,5", "2", "3"], "3 of 9 that are not, first '1,5' in train.tsv, line 2", ""),
    (["27", "8,20", "8", "20"], "3 of 12 that are not, first '8,20' in train.tsv, line 3", "multi_label"),
]


@pytest.mark.parametrize("labels, first, more", BUT_FOR_SOME)
def test_numbers_but_for_some_are_neither_classes_nor_scores(tmp_path, labels, first, more):
    train = [(f"x{i}", label) for i in range(3) for label in labels]
    with refused("Repair or drop these rows for --task=regression, or .*=classif") as caught:
        warnings_of(tmp_path, train)
    said = str(caught.value).replace(f"{tmp_path}/", "")
    assert first in said and more in said and ("multi_label" in said) == bool(more)
    assert not any("number" in line for line in warnings_of(tmp_path, train, task="classification")), "as asked for"


SEVERAL_IN_ONE = [
    ["[0, 1, 0]", "[1, 0, 0]"],
    ["[0. 1.]", "[1. 0.]", "[1. 1.]"],
    ["['joy']", "['joy', 'fear']"],
    ['["a","b"]', '["b"]', "[]"],
    ["{'a', 'b'}", "{'b'}", "{'c', 'a'}"],
    ["joy", "joy|fear", "fear"],
    ["Drama|Comedy", "Comedy|War", "War|Drama"],
    ["a; b", "b; c", "a", "c"],
    ["0 1 0", "1 0 0"],
    ["joy", "joy#fear", "fear"],
    ["flight", "fare", "flight+fare"],
    ["a/b", "a", "b"],
]


@pytest.mark.parametrize("labels", SEVERAL_IN_ONE)
def test_several_labels_in_one_text(tmp_path, labels):
    (line,) = warnings_of(tmp_path, [(f"{label} {i}", label) for label in labels for i in range(5)])
    assert "looks like several labels in one" in line and any(repr(label) in line for label in labels)


CLASSES = [
    ["v1.5", "v2.5", "3"],
    ["1", "2", "n.d."],
    ["1.0", "2.0", "?"],
    ["a", "b", "1.5"],
    ["R&B|Soul", "Rock", "Jazz"],
    ["Sports|Football", "Sports|Tennis"],
    ["a|b", "c"],
    ["[none]", "good", "bad", "[other]", "fair"],
    ["Health, Safety", "Law"],
    ["very good", "very bad", "good", "bad"],
    ["not good", "good"],
    ["|", "||", "a"],
    ["comp/sys", "comp/os", "rec/sys"],
    ["c", "c++", "c#"],
    ["(a)", "(b)"],
    ["0", "1", "10"],
    ["1 star", "2 stars"],
]


@pytest.mark.parametrize("labels", CLASSES)
def test_names_with_numbers_or_a_separator_are_classes(tmp_path, labels):
    assert warnings_of(tmp_path, [(f"{label} {i}", label) for label in labels for i in range(5)]) == []


def test_numbers_that_differ_stay_apart(tmp_path):
    ids = [(f"x{i}", label) for i in range(5) for label in ("12345678", "12345679", "0.1000001", "0.1")]
    assert warnings_of(tmp_path, ids, task="classification") == []


def test_classes_that_hardly_occur(tmp_path):
    said = "warning: 2 of 4 classes with fewer than 5 training examples: 'bda' (4), 'goof' (1)"
    assert warnings_of(tmp_path, rows(good=30, bad=5, goof=1, bda=4)) == [said]
    (line,) = warnings_of(tmp_path, rows(**{f"c{i:02}": 1 + 99 * (i == 0) for i in range(30)}), task="classification")
    assert "29 of 30 classes" in line and line.endswith("'c10' (1), and 19 more")
    assert warnings_of(tmp_path, [("x", f"{i}.5") for i in range(9)]) == [], "scores are no classes"
    # What is trained on counts.
    (line,) = warnings_of(tmp_path, rows(a=50, b=50), max_train_examples=6)
    assert "classes with fewer than 5" in line


def test_one_file_in_two_roles(tmp_path):
    warnings_of(tmp_path, rows(good=5, bad=5))
    path = str(tmp_path / "train.tsv")
    (tmp_path / "test.tsv").symlink_to(path)
    for files in ({"validation_file": path}, {"test_file": str(tmp_path / "test.tsv")}):
        notes = load_data(DataConfig(train_file=path, **files)).notes
        assert sum("is used for training and for evaluation" in note for note in notes) == 1
        assert not any("rows are in the training data" in note for note in notes)


def test_rows_in_common_are_counted(tmp_path):
    train = rows(good=6, bad=6)
    validation = [*train[:2], train[1], (" good 3  ", "bad"), ("new", "bad"), ("", "good")]
    said = warnings_of(tmp_path, [*train, ("", "bad")], validation, [("fresh", "good"), train[0]])
    trained_on = "rows are in the training data too"
    assert said == [f"warning: validation.tsv: 4 of 6 {trained_on}", f"warning: test.tsv: 1 of 2 {trained_on}"]
    pairs = [(f"a{i}", f"b{i}", str(i % 2)) for i in range(10)]
    said = warnings_of(tmp_path, pairs, [("a1", "b2", "0"), ("a3", "b3", "1")])
    assert said[0] == f"warning: validation.tsv: 1 of 2 {trained_on}"


def test_rows_in_common_are_those_that_are_used(tmp_path):
    train = rows(good=60, bad=60)
    (line,) = warnings_of(tmp_path, train, train, max_eval_examples=7)
    assert line == "warning: validation.tsv: 7 of 7 rows are in the training data too"


@pytest.mark.parametrize("is_list", [True, False])
@pytest.mark.parametrize("labels", [["a"], ["a", "b"], []])
def test_several_labels_of_which_each_text_has_one(write, is_list, labels):
    """One label as a list of one, or as the only 1 of its row."""
    rows = [{"text": f"text {i}", "labels": [name]} for i, name in enumerate("abc" * 5)]
    rows += [{"text": "x", "labels": labels}]
    if not is_list:
        rows = [{"text": row["text"]} | {name: int(name in row["labels"]) for name in "abc"} for row in rows]
    files = {"train_file": write("train.jsonl", rows), "label_column": "labels" if is_list else "a,b,c"}
    notes = load_data(DataConfig(task="multi_label_classification", **files)).notes
    said = [note for note in notes if "exactly one label" in note]
    assert len(said) == (len(labels) == 1)
    assert all(note.startswith("warning: ") and "--task=classification" in note for note in said)
