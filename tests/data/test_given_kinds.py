"""Data in memory is read as a file with the same rows is: every kind of it, and what their packages make of values."""

import decimal
import enum
import pathlib

import numpy as np
import pyarrow
import pytest
import tensorflow as tf
from pyarrow import parquet

from tests.support.labelled import json_lines
from tests.support.refusals import refused
from tfbert import DataConfig, UsageError
from tfbert.data.files import read_file
from tfbert.data.in_memory import given_table
from tfbert.data.reading import plain
from tfbert.tasks.multi_label.table import cell_of, indicated_labels
from tfbert.tasks.multiple_choice import label_of
from tfbert.tasks.question_answering.squad import holds_questions, read_questions
from tfbert.tasks.token_classification.tagged import holds_words, read_sentences

TEXTS = ["good film", "bad", " dull,\nslow ", "naïve 😀", ""]
LABELS = [1, 0, 0, 1, 1]
SENTENCES = [["Ann", "met", "Bo"], ["it", "rained"], ["Rome"]]
TAGS = [["B-PER", "O", "B-PER"], ["O", "O"], ["B-LOC"]]


@pytest.fixture
def pandas():
    return pytest.importorskip("pandas")


def pandas_frame(columns):
    rows = len(next(iter(columns.values())))
    return pytest.importorskip("pandas").DataFrame(columns, index=[f"row {i}" for i in range(rows)])


def records(columns):
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


KINDS = {
    "DataFrame": pandas_frame,
    "polars": lambda columns: pytest.importorskip("polars").DataFrame(columns),
    "datasets": lambda columns: pytest.importorskip("datasets").Dataset.from_dict(columns),
    "Arrow": pyarrow.table,
    "columns": dict,
    "columns of arrays": lambda columns: {n: np.array([*v, None], object)[:-1] for n, v in columns.items()},
    "records": records,
    "named tuples": lambda columns: [*pandas_frame(columns).iloc[:, ::-1].itertuples(index=False)],
}


def table(value):
    return given_table("train", value)


def same(ours, theirs):
    """Whether two tables hold the same; places and names differ."""
    for name, value in vars(ours).items():
        if name not in ("name", "lines", "unit", "places", "place_names"):
            np.testing.assert_equal(value, vars(theirs)[name], err_msg=name)


ANSWERS = [{"text": ["1066"], "answer_start": [3]}, {"text": [], "answer_start": []}]
ASKED = {"id": ["1", "2"], "question": ["When?", "Who?"], "context": ["In 1066 it rained.", "Ann met Bo."]}
PAIRS = {"premise": TEXTS, "hypothesis": TEXTS[::-1], "gold": ["a", "b", "b", "a", "b"]}
READ = {
    "texts": (read_file, {"id": list("abcde"), "text": TEXTS, "label": LABELS}),
    "pairs": (lambda source: read_file(source, DataConfig(label_column="gold")), PAIRS),
    "sentences": (read_sentences, {"tokens": SENTENCES, "ner_tags": TAGS}),
    "questions": (lambda source: read_questions(source, version_2_with_negative=True), ASKED | {"answers": ANSWERS}),
}


@pytest.mark.parametrize("what", READ)
@pytest.mark.parametrize("kind", KINDS)
def test_data_of_every_kind_is_that_of_a_file(kind, what, write):
    read, columns = READ[what]
    given = table(KINDS[kind](columns))
    found = read(given)
    same(found, read(pathlib.Path(write("f.jsonl", json_lines(*records(columns))))))
    assert found.name.startswith("train=") and found.name.endswith(f" of {len(records(columns))} rows")
    assert found.where(1).endswith("row 2")
    assert (holds_words(given), holds_questions(given)) == (what == "sentences", what == "questions")


def test_a_word_a_row_is_refused_in_a_frame_as_in_a_file(tmp_path, pandas):
    columns = {"Sentence #": ["1", "", "", "2", ""], "Word": ["Ann", "met", "Bo", "it", "rained"]}
    frame = pandas.DataFrame(columns | {"Tag": ["B-PER", "O", "B-PER", "O", "O"]}).replace("", None)
    frame.to_csv(tmp_path / "f.csv", index=False)
    assert holds_words(table(frame))
    for source in (table(frame), tmp_path / "f.csv"):
        with pytest.raises(UsageError, match="with one word per row, in 'Word'"):
            read_sentences(source)


def test_pairs_are_a_text_two_texts_or_words_with_their_label():
    found = read_file(table(list(zip(TEXTS, LABELS, strict=True))))
    assert (found.text, found.text_pair, found.labels) == (TEXTS, None, ["1", "0", "0", "1", "1"])
    found = read_file(table([((a, b), label) for a, b, label in zip(TEXTS, TEXTS[::-1], LABELS, strict=True)]))
    assert (found.text, found.text_pair) == (TEXTS, TEXTS[::-1])
    ragged = {"tokens": tf.ragged.constant(SENTENCES), "tags": tf.ragged.constant(TAGS)}
    assert read_sentences(table([*tf.data.Dataset.from_tensor_slices(ragged).as_numpy_iterator()])).tags == TAGS
    for words in (list, tuple, np.array):
        found = read_sentences(table([(words(w), words(t)) for w, t in zip(SENTENCES, TAGS, strict=True)]))
        assert (found.words, found.tags) == (SENTENCES, TAGS)
    with pytest.raises(UsageError, match=r"Each pair is \(text, label\). Received: 'lost' \(str\) in train, row 2"):
        read_file(table([("a", 1), "lost", ("b", 0)]))
    assert read_file(table([("a", 1), "lost", ("b", 0)]), DataConfig(skip_bad_rows=True)).text == ["a", "b"]


def test_classes_of_a_datasets_dataset_have_their_names_and_order(tmp_path):
    datasets = pytest.importorskip("datasets")
    classes = datasets.ClassLabel(names=["positive", "negative"])
    features = datasets.Features({"text": datasets.Value("string"), "label": classes})
    data = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [0, 1, 0]}, features)
    found = read_file(table(data))
    assert (found.labels, found.label_names) == (["positive", "negative", "positive"], ("positive", "negative"))
    for view in (data.with_format("numpy"), data.shuffle(seed=1).sort("text"), data.select([0, 1, 2])):
        assert read_file(table(view)).labels == found.labels
    unlabelled = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, -1]}, features)
    with refused("Every row needs a label. Received: -1, which stands for a missing one, for 'label' in .*row 2"):
        read_file(table(unlabelled))
    listed = getattr(datasets, "List", datasets.Sequence)(datasets.ClassLabel(names=["O", "B-X"]))
    features = datasets.Features({"tokens": datasets.Sequence(datasets.Value("string")), "ner_tags": listed})
    data = datasets.Dataset.from_dict({"tokens": [["a", "b"]], "ner_tags": [[1, 0]]}, features)
    assert read_sentences(table(data)).tags == [["B-X", "O"]]


class Word(str, enum.Enum):  # noqa: UP042, as users have it
    GOOD = "good"


def test_values_become_those_of_python():
    values = (np.int64(3), np.bool_(True), np.float64(0.5), np.str_("a"), b"\xc3\xa9")
    assert [plain(value) for value in values] == [3, True, 0.5, "a", "é"]
    assert type(plain(np.int64(3))) is int and type(plain(np.bool_(True))) is bool and type(plain(Word.GOOD)) is str
    assert plain(Word.GOOD) == "good" and plain(float("nan")) is None and plain(np.float32("nan")) is None
    assert plain(np.array([b"a", b"b"])) == ["a", "b"] and plain((np.array([1, 2]),)) == [[1, 2]]
    assert plain({"text": np.array(["x"], object), "n": np.array([1])}) == {"text": ["x"], "n": [1]}
    assert plain(tf.constant([b"a"])) == ["a"] and plain(pyarrow.scalar("a")) == "a"
    assert plain(b"\xff") == b"\xff"
    time = np.datetime64("2020-01-01T00:00:00", "ns")
    assert plain(time) is time


DECIMALS = [
    (["1", "0"], ["1", "0"]),
    (["3.20", "-0.5"], ["3.2", "-0.5"]),
    (["2.00", "10.0"], ["2.0", "10.0"]),  # As these numbers are in any file.
    (["1E+2", "1E-2"], ["100.0", "0.01"]),
    (["12345678901234567890", "7"], ["12345678901234567890", "7"]),
]


@pytest.mark.parametrize("values, expected", DECIMALS)
def test_decimal_labels_are_numbers(values, expected, tmp_path, pandas):
    """As a database gives them, in memory and in Parquet."""
    numbers = list(map(decimal.Decimal, values))
    columns = {"text": ["x", "y"], "label": numbers}
    forms = [columns, records(columns), pyarrow.table(columns), list(zip(*columns.values(), strict=True))]
    forms += [pandas.DataFrame(columns), pyarrow.table(columns).to_pandas(types_mapper=pandas.ArrowDtype)]
    assert [read_file(table(form)).labels for form in forms] == [expected] * len(forms)
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    assert read_file(tmp_path / "a.parquet").labels == expected
    with pytest.raises(UsageError, match="Every row needs a label. Received: none"):
        read_file(table({"text": ["x", "y"], "label": [numbers[0], decimal.Decimal("NaN")]}))


def test_decimal_numbers_in_the_labels_of_other_tasks():
    one, none, half = map(decimal.Decimal, ("1.00", "0", "0.5"))
    assert indicated_labels([one, none], ["a", "b"], "row 1") == ("a",)
    with pytest.raises(UsageError, match="holds 0 or 1 in each row.* Received: Decimal"):
        indicated_labels([half], ["a"], "row 1")
    assert cell_of([decimal.Decimal(3), "b"], "labels", "row 1") == [3, "b"]
    assert cell_of(one, "labels", "row 1") == "1.0"
    assert (label_of(one, "row 1"), label_of(decimal.Decimal(-1), "row 1")) == (1, None)
    with pytest.raises(UsageError, match="the number of the right choice"):
        label_of(half, "row 1")


@pytest.mark.parametrize("dtype", ["object", "category", "Int64", "int8", "boolean", "Float64", "string"])
def test_labels_of_a_frame_are_the_same_in_any_type(dtype, pandas):
    values = {"boolean": [True, False], "category": ["b", "a"], "string": ["b", "a"]}.get(dtype, [1, 0])
    frame = pandas.DataFrame({"text": ["x", "y"], "label": pandas.Series(values, dtype=dtype)})
    expected = {"boolean": ["true", "false"], "Float64": ["1.0", "0.0"]}.get(dtype, list(map(str, values)))
    assert read_file(table(frame)).labels == expected


@pytest.mark.parametrize("missing", [None, float("nan"), "NA"])
def test_a_missing_text_or_label_is_refused_by_its_row(missing, pandas):
    missing = pandas.NA if missing == "NA" else missing
    for column, said in (("label", "Every row needs a label. Received: none"), ("text", "Every row needs a text")):
        values = {"text": ["x", "y"], "label": [1, 0]}
        values[column][1] = missing
        frame = pandas.DataFrame({name: pandas.Series(v, [7, 7], dtype=object) for name, v in values.items()})
        with pytest.raises(UsageError, match=f"{said}.* train=DataFrame of 2 rows, row 2"):
            read_file(table(frame))
        assert len(read_file(table(frame), DataConfig(skip_bad_rows=True))) == 1


def test_columns_of_one_name_are_refused_where_they_matter(pandas):
    frame = pandas.DataFrame([["a", "b", 1, 2]], columns=["text", "text", "label", "other"])
    way_out = ".*rename all but one, or drop them"
    with pytest.raises(UsageError, match="text and text all look like the text" + way_out):
        read_file(table(frame))
    with pytest.raises(UsageError, match="text_column='text' is in the data twice" + way_out):
        read_file(table(frame), DataConfig(text_column=["text"]))
    with pytest.raises(UsageError, match="label and label all look like the label" + way_out):
        read_file(table(frame.set_axis(["text", "more", "label", "label"], axis=1)))
    with pytest.raises(UsageError, match=r"text and Text all look like the text.* Pass (--)?text_column\."):
        read_file(table(frame.set_axis(["text", "Text", "label", "other"], axis=1)))  # That can be followed.
    assert read_file(table(frame.set_axis(["text", "x", "label", "x"], axis=1))).text == ["a"]
    numbered = table(frame.set_axis([0, 1, 2, 3], axis=1))
    assert read_file(numbered, DataConfig(text_column=["1"], label_column="2")).text == ["b"]


def test_an_arrow_table_of_dictionaries_and_chunks_is_read_by_its_values(tmp_path):
    label = pyarrow.chunked_array([pyarrow.array(["b"]).dictionary_encode(), pyarrow.array(["a"]).dictionary_encode()])
    made = pyarrow.table({"text": ["x", "y"], "label": label})
    assert read_file(table(made)).labels == ["b", "a"]
    parquet.write_table(made, tmp_path / "f.parquet")
    same(read_file(table(made)), read_file(tmp_path / "f.parquet"))
    assert read_file(table(made.to_batches()[0])).labels == ["b"]


NO_TABLES = [
    ([], r"at least one row. Received: train=\[\]"),
    ({}, "at least one row. Received: train=columns of 0 rows"),
    ((x for x in [("a", 1)]), "It can be read only once: pass list"),
    ((["a", "b"], [1, 0]), r"Pass list\(zip\(texts, labels\)\)"),
    (["a", "b"], "A list holds records, each a dictionary, or pairs"),
    (np.array([["a", "1"]]), "train must be a path, a DataFrame"),
    ({"text": ["a", "b"], "label": [1]}, "All columns must have as many values. Received: train with 'text': 2"),
    ({"text": "ab", "label": [1, 0]}, r"each is a list with a value for each row. Received: train\['text'\]"),
    ({"text": iter("ab"), "label": [1, 0]}, "each is a list with a value for each row"),
    ({"train": {"text": ["a"], "label": [1]}}, r"one set. .*Pass one of its sets, such as data\['train'\]"),
    (5, "train must be a path"),
    ({"a", "b"}, "train must be a path"),
]


@pytest.mark.parametrize("value, said", NO_TABLES)
def test_anything_else_is_refused_in_a_line(value, said):
    with refused(said):
        table(value)


def test_what_other_packages_have_besides_tables_is_refused_with_a_way_out(pandas):
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"text": ["a"], "label": [1]})
    for value, said in (
        (pandas.Series(["a"]), "A Series is one column"),
        (pandas.DataFrame({"text": [], "label": []}), "at least one row. Received: train=DataFrame of 0 rows"),
        (pytest.importorskip("polars").LazyFrame({"text": ["a"]}), r"Pass its collect\(\)"),
        (data.to_iterable_dataset(), "It may have no end"),
        (datasets.DatasetDict(train=data), r"Pass one of its sets, such as data\['train'\]"),
        (data.with_transform(lambda rows: rows), "with a transform that is applied when it is read"),
    ):
        with pytest.raises(UsageError, match=said):
            table(value)
    with pytest.raises(UsageError, match="data in memory to tfbert.finetune as train="):
        DataConfig(train_file=[("a", 1)])
