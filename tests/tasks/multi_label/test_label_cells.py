"""How labels are written: every form gives the same table; what is not clear is refused in a line."""

import dataclasses
import json

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from tests.support.flag_values import SCRATCH
from tests.support.labelled import json_lines
from tests.support.refusals import refused
from tfbert import Config, DataConfig, MultiLabelConfig, UsageError
from tfbert.config.run import FINETUNE
from tfbert.config.tasks import TaskOptions
from tfbert.python import config_of
from tfbert.tasks.registry import detect_task
from tfbert.tasks.tables import load_data

NAME = "multi_label_classification"
TEXTS = ["good film", "bad film", "dull plot", "fine cast"]
SETS = [("a", "c"), (), ("b",), ("c",)]
EXPECTED = [[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 1]]
IDS = [["abc".index(label) for label in labels] for labels in SETS]


def rows_of(labels):
    return json_lines(*({"text": text, "labels": own} for text, own in zip(TEXTS, labels, strict=True)))


def delimited(labels, head="text\tlabels\n"):
    return head + "".join(f"{text}\t{own}\n" for text, own in zip(TEXTS, labels, strict=True))


def load(path, separator="", **options):
    config = DataConfig(train_file=path, task=NAME, **options)
    return load_data(config, TaskOptions(multi_label=MultiLabelConfig(label_separator=separator)))


def in_columns(yes="1", no="0"):
    return delimited(["\t".join(yes if has else no for has in row) for row in EXPECTED], "text\ta\tb\tc\n")


VECTORS = [list(map(float, row)) for row in EXPECTED]
ABC, HEADLESS = {"label_names": ("a", "b", "c")}, {"header": False, "text_column": ("0",)}
FORMS = {
    "lists of names": ("x.jsonl", rows_of(SETS), {}),
    "lists of ids": ("x.jsonl", rows_of(IDS), ABC),
    "ids as text": ("x.jsonl", rows_of([list(map(str, ids)) for ids in IDS]), ABC),
    "vectors": ("x.jsonl", rows_of(EXPECTED), ABC),
    "vectors of floats": ("x.jsonl", rows_of(VECTORS), ABC),
    "vectors of truth values": ("x.jsonl", rows_of([list(map(bool, row)) for row in EXPECTED]), ABC),
    "bars": ("x.tsv", delimited(["a|c", "", "b", "c"]), {}),
    "bars at the end": ("x.tsv", delimited(["a|c|", "", "b|", "c|"]), {}),
    "commas and blanks": ("x.tsv", delimited(["a, c", "", "b", " c "]), {}),
    "GoEmotions": ("x.tsv", delimited(["0,2", "", "1", "2"], ""), ABC | HEADLESS | {"label_column": "1"}),
    "ids and blanks": ("x.tsv", delimited(["0 2", "", "1", "2"]), ABC),
    "another character": ("x.tsv", delimited(["a/c", "", "b", "c"]), {"separator": "/"}),
    "Python's lists": ("x.tsv", delimited([str(list(labels)) for labels in SETS]), {}),
    "JSON's lists": ("x.tsv", delimited([json.dumps(labels) for labels in SETS]), {}),
    "columns": ("x.tsv", in_columns(), {"label_column": "a,b,c"}),
    "columns of floats": ("x.tsv", in_columns("1.0", "0.0"), {"label_column": "a,b,c"}),
    "columns of truth values": ("x.tsv", in_columns("True", "False"), {"label_column": ["a", "b", "c"]}),
    "columns of known labels": ("x.tsv", in_columns(), ABC),
    "columns without names": ("x.tsv", in_columns().partition("\n")[2], ABC | HEADLESS | {"label_column": "1,2,3"}),
}


@pytest.mark.parametrize("name, content, options", FORMS.values(), ids=FORMS)
def test_every_form_gives_the_same_labels(write, name, content, options):
    data = load(write(name, content), **options)
    assert data.task.label_names == ("a", "b", "c")
    assert data.train.labels.tolist() == EXPECTED and data.train.labels.dtype == np.int8
    assert data.train.text == TEXTS
    assert any("1 of 4 texts have no label" in note for note in data.notes)


NAMES = ("c", "never", "a", "1")  # Neither by alphabet, nor all of them in a row; one is a number of another.
NAMED_IDS = [[2, 0], [], [3], [0]]
FEATURE = {"feature": {"names": [*NAMES], "_type": "ClassLabel"}, "_type": "Sequence"}
SCHEMA = {"huggingface": json.dumps({"info": {"features": {"labels": FEATURE}}})}


@pytest.mark.parametrize("form", ["Parquet", "Arrow", "Dataset"])
def test_the_names_that_the_data_has_for_ids_keep_their_order(tmp_path, form):
    source = pyarrow.table({"text": TEXTS, "labels": NAMED_IDS}).replace_schema_metadata(SCHEMA)
    if form == "Dataset":
        datasets = pytest.importorskip("datasets")
        classes = datasets.Sequence(datasets.ClassLabel(names=list(NAMES)))
        features = datasets.Features({"text": datasets.Value("string"), "labels": classes})
        source = datasets.Dataset.from_dict({"text": TEXTS, "labels": NAMED_IDS}, features)
    if form == "Parquet":
        parquet.write_table(source, tmp_path / "x.parquet")
        config = DataConfig(train_file=str(tmp_path / "x.parquet"), task=NAME)
    else:
        config = config_of(FINETUNE, None, {"task": NAME, "model": "scratch/tiny"}, {"train": source}).data
    data = load_data(config)
    assert data.task.label_names == NAMES
    assert data.train.labels.tolist() == [[1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]]
    assert not any("label_names" in note for note in data.notes)
    named = load_data(dataclasses.replace(config, label_names=("w", "x", "y", "z")))
    assert named.task.label_names == ("w", "x", "y", "z") and named.train.labels.tolist() == data.train.labels.tolist()
    # What stands for no label, and an id without a name.
    for id in (-1, 4):
        with pytest.raises(UsageError, match=f"one of the 4 that the file names. Received: {id} for .*row 2"):
            wrong = pyarrow.table({"text": TEXTS, "labels": [[0], [id], [3], [0]]})
            parquet.write_table(wrong.replace_schema_metadata(SCHEMA), tmp_path / "y.parquet")
            load(str(tmp_path / "y.parquet"))


def test_pairs_a_dropped_row_and_numbers_in_their_order(write):
    head = "sentence1,sentence2,labels\n"
    data = load(write("x.csv", f'{head}a,b,"10,9"\nc,d,x||y\ne,f,9\n'), skip_bad_rows=True, separator=",")
    assert data.task.label_names == ("10", "9", "x||y") and data.train.text_pair == ["b", "d", "f"]
    data = load(write("y.csv", f"{head}a,b,10|9\nc,d,x||y\ne,f,9\n"), skip_bad_rows=True)
    assert data.train.labels.tolist() == [[1, 1], [1, 0]] and data.train.lines.tolist() == [2, 4]
    assert any("1 of 3 rows skipped; the first: Labels must not be empty" in note for note in data.notes)


def test_labels_that_look_like_calls_are_labels(write):
    data = load(write("x.tsv", delimited(["set(s)|list(s)", "set", "array (x)", "list(s)"])))
    assert data.task.label_names == ("array (x)", "list(s)", "set", "set(s)")


ABC_COLUMNS, NO_B = {"label_column": "a,b,c"}, in_columns().replace("\tc\n", "\tb\n", 1)
NUMPYS_NAMES = delimited(["['a' 'b']", "['b']", "['a']", "[]"])
NUMPYS = delimited(["[0 1 0]", "[1 0 0]", "[1 1 1]", "[0 0 0]"])
REFUSED = {
    "a label twice": ("x.jsonl", rows_of([["a", "a"], [], ["b"], []]), {}, "label once. Received: 'a' twice .*line 1"),
    "half a surrogate pair": ("x.jsonl", rows_of([["a"], ["\ud800"], ["b"], []]), {}, "valid Unicode.*line 2"),
    "two forms": ("x.jsonl", rows_of([["a"], "b", [], []]), {}, "in one form. Received: the text 'b' in .*line 2, the"),
    "nothing": ("x.jsonl", rows_of([["a"], None, ["b"], []]), {}, r"or text. Received: none .*line 2. Write \[\] or"),
    "a missing value": ("x.tsv", delimited(["a|b", "NA", "b", ""]), {}, "clear whether .* Received: 'NA', .*line 3"),
    "no consensus": ("x.tsv", delimited(["a|b", "-", "b", ""]), {}, "clear whether .* Received: '-', .*line 3"),
    "held back": ("x.jsonl", rows_of([["0"], ["-1"], ["2"], []]), {}, "clear whether .* Received: '-1', .*line 2"),
    "one of several": ("x.tsv", delimited(["a|b", "a|#VALUE!", "b", ""]), {}, "clear whether .*'#VALUE!', .*line 3"),
    "ids and texts": ("x.csv", "id,text\n1,good\n", {}, "looks like the labels. .* 'id', 'text'. .*hold 0 and 1, or "),
    "columns that nobody names": ("x.tsv", in_columns(), {}, "all that hold 0 and 1, such as --label_column=a,b,c, or"),
    "two separators": ("x.tsv", delimited(["a|b", "b,c", "b", ""]), {}, r"'\|' in .*2 and ',' in .*3. Pass --l"),
    "an empty label": ("x.tsv", delimited(["a||b", "b", "b", ""]), {}, r"not be empty. Received: 'a\|\|b' in .*line 2"),
    "soft labels": ("x.jsonl", rows_of([[0.3, 0.7], [1, 0], [0, 0], [1, 1]]), {}, "0.3 of the list .*line 1"),
    "a negative id": ("x.jsonl", rows_of([[1, 2], [-1], [2], [1]]), {}, "or ids from 0, .* Received: -1 of .*line 2"),
    "NumPy's lists": ("x.tsv", NUMPYS, {}, "that JSON or Python reads. R"),
    "NumPy's names": ("x.tsv", NUMPYS_NAMES, {}, r"Python reads. .*'a' 'b'.*line 2"),
    "NumPy's set": ("x.tsv", delimited(["{'a' 'b'}", "b", "a", "c"]), {}, r"Python reads. .*'a' 'b'.*line 2"),
    "an array": ("x.tsv", delimited(["a", "b", "array(['a'])", "b"]), {}, r"brackets must be .*array\(.*line 4"),
    "a frozen set": ("x.tsv", delimited(["a", "b", "c", "frozenset({'a'})"]), {}, r"brackets must be .*frozen.*line 5"),
    "Python's sets": ("x.tsv", delimited(["{'a', 'c'}", "a", "b", "c"]), {}, "docs/other_formats.md of"),
    "an empty set": ("x.tsv", delimited(["a", "set()", "b", "c"]), {}, r"brackets must be .*'set\(\)' in .*line 3"),
    "Python's tuples": ("x.tsv", delimited(["a", "b", "('a', 'c')", "()"]), {}, "brackets must be a list.*line 4"),
    "objects": ("x.jsonl", rows_of([{"a": 1}] * 4), {}, "are a list, .* Received: labels={'a': 1} in .*line 1"),
    "not scored": ("x.tsv", in_columns(no="-1"), ABC_COLUMNS, "holds 0 or 1 .* Received: '-1' for 'b' in"),
    "a column that is not there": ("x.tsv", in_columns(), {"label_column": "a,d"}, "='d' is not in the data. R"),
    "a column with a fault": ("x.tsv", in_columns().replace("t\t0", "t\t"), ABC_COLUMNS, "none for 'a' in .*line 4"),
    "a column twice": ("x.tsv", NO_B, {"label_column": "a,b"}, "'b' is in the data twice.*: rename all but"),
    "a label named twice": ("x.tsv", in_columns(), {"label_column": "a,b,a"}, "must be different columns. Rec"),
    "one label": ("x.tsv", delimited(["a", "", "a", "a"]), {}, "at least two labels, .* Received: only 'a' in"),
    "an id without a name": ("x.jsonl", rows_of([[0, 5], [], [1], [2]]), ABC, "numbers 0 to 2. .*'5' in .*line 1"),
    "too few names": ("x.jsonl", rows_of(EXPECTED), {"label_names": ("a", "b")}, "as many as the labels of the"),
    "a separator of lists": ("x.jsonl", rows_of(SETS), {"separator": "|"}, "A list needs no separator. Received"),
    "a separator of columns": ("x.tsv", in_columns(), ABC | {"separator": "|"}, "Columns of 0 and 1 need no separa"),
}


@pytest.mark.parametrize("name, content, options, message", REFUSED.values(), ids=REFUSED)
def test_what_is_not_clear_is_refused_in_a_line(write, name, content, options, message):
    with refused(message):
        load(write(name, content), **options)


DOUBTLESS = ("lists of names", "lists of ids", "vectors", "columns", "columns without names")
DOUBTFUL = ("bars", "Python's lists", "columns of known labels", "GoEmotions")


@pytest.mark.parametrize("form", [*DOUBTLESS, *DOUBTFUL])
def test_the_task_is_detected_where_that_is_beyond_doubt(write, form):
    name, content, options = FORMS[form]
    config = detect_task(Config(model=SCRATCH, data=DataConfig(train_file=write(name, content), **options)))
    assert config.data.task == (NAME if form in DOUBTLESS else "auto")


IN_MEMORY = {
    "columns": (
        {"text": TEXTS} | dict(zip("abc", zip(*EXPECTED, strict=True), strict=True)),
        {"label_column": [*"abc"]},
    ),
    "records": ([{"text": text, "labels": list(labels)} for text, labels in zip(TEXTS, SETS, strict=True)], {}),
    "pairs": ([(text, list(labels)) for text, labels in zip(TEXTS, SETS, strict=True)], {}),
    "arrays of ids": ({"text": TEXTS, "labels": [np.array(ids, np.int64) for ids in IDS]}, {"label_names": [*"abc"]}),
}


@pytest.mark.parametrize("train, options", IN_MEMORY.values(), ids=IN_MEMORY)
def test_tables_in_memory_are_read_as_files_are(train, options):
    config = detect_task(config_of(FINETUNE, None, {"model": "scratch/tiny"} | options, {"train": train}))
    data = load_data(config.data, config.task_options)
    assert (config.data.task, data.task.label_names) == (NAME, ("a", "b", "c"))
    assert data.train.labels.tolist() == EXPECTED


def test_lists_of_words_with_lists_of_tags_are_tagging_still(write):
    path = write("x.jsonl", json_lines({"text": "a b", "tokens": ["a", "b"], "labels": ["O", "B-X"]}))
    assert detect_task(Config(model=SCRATCH, data=DataConfig(train_file=path))).data.task == "token_classification"


def test_other_sets_have_the_labels_of_training(write):
    train, other = write("train.jsonl", rows_of(SETS)), write("dev.jsonl", rows_of([["a"], ["d"], [], []]))
    with pytest.raises(UsageError, match="one of the training data's 3: .* Received: 'd' in .*dev.jsonl, line 2"):
        load(train, validation_file=other)
    train, other = write("3.jsonl", rows_of(EXPECTED)), write("2.jsonl", rows_of([[1, 0], [0, 1], [0, 0], [1, 1]]))
    with pytest.raises(UsageError, match="each of the 3 labels. Received: .*2.jsonl without '2'. Pass data whose"):
        load(train, validation_file=other)


def test_a_share_that_is_held_out_keeps_each_label(write):
    labels = [[["a"], ["a", "b"], [], ["c"]][i % 4] for i in range(80)]
    rows = json_lines(*({"text": f"text {i}", "labels": own} for i, own in enumerate(labels)))
    data = load(write("x.jsonl", rows), validation_split=0.25)
    assert data.validation["validation"].labels.sum(axis=0).tolist() == [10, 5, 5]
    assert data.train.labels.sum(axis=0).tolist() == [30, 15, 15]
