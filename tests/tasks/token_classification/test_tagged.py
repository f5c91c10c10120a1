"""Sentences with tags from CoNLL, JSON lines and Parquet; the columns that hold them; bad ones."""

import io
import json
import pathlib
import tracemalloc

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.flag_values import SCRATCH
from tests.support.refusals import refused
from tests.support.task_runs import SENTENCES
from tfbert import Config, DataConfig, ModelConfig, PredictConfig
from tfbert.data.in_memory import given_table
from tfbert.tasks.registry import detect_task, entry_of
from tfbert.tasks.tables import load_data
from tfbert.tasks.token_classification.tagged import holds_words, open_sentences, read_sentences

NCBI = pathlib.Path(__file__).parents[4] / "shared" / "data" / "ncbi_disease"
NCBI_SIZES = [("dev", 923), *(pytest.param(*part, marks=pytest.mark.slow) for part in (("train", 5424), ("test", 940)))]
WORDS = [["Ann", "left"], ["Oslo"]]
TAGS = [["B-PER", "O"], ["B-LOC"]]
NAMES = ["O", "B-PER", "B-LOC"]


def rows_of(**columns) -> list[dict]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


FORMS = [
    ("a.conll", "Ann B-PER\nleft O\n\nOslo B-LOC\n"),
    ("a.tsv.gz", "Ann\tB-PER\nleft\tO\n\nOslo\tB-LOC\n"),
    ("a.jsonl", rows_of(tokens=WORDS, ner_tags=TAGS)),
    ("a.json.gz", rows_of(text=WORDS, labels=TAGS)),
    ("a.jsonl", rows_of(Words=WORDS, text=["Ann left", "Oslo"], pos_tags=[["X", "X"], ["X"]], label=TAGS)),
    ("a.jsonl", rows_of(tokens=WORDS, tags=[[3, 4], [5]], NER_tags=TAGS)),
]


@pytest.mark.parametrize(("name", "content"), FORMS)
def test_forms_of_one_table(name, content, write):
    table = read_sentences(write(name, content))
    assert (table.words, table.tags, len(table), table.notes) == (WORDS, TAGS, 2, ())
    second = {"conll": 4, "tsv": 4}.get(name.split(".")[1], 2)
    assert list(table.lines) == [1, second] and table.where(1) == f"{table.name}, line {second}"


SPOKEN = {
    "text": ["fly to Oslo", "Boston please", "show me Rome flights", "hello"],
    "labels": ["O O B-city", "B-city O", "O O B-city O", "O"],
}


def each(change) -> dict[str, list]:
    return SPOKEN | {"labels": [change(text) for text in SPOKEN["labels"]]}


AS_MANY = {
    "blanks": SPOKEN,
    "commas": each(lambda text: text.replace(" ", ",")),
    "bars": each(lambda text: text.replace(" ", "|")),
    "commas and blanks": each(lambda text: text.replace(" ", ", ")),
    "a list as text": each(lambda text: str(text.split())),
    "parts of speech": {"text": ["a b c", "d e"], "labels": ["DET NOUN NOUN", "NOUN VERB"]},
    "cut otherwise": {"text": ["to Oslo!", "on Monday?"], "labels": ["O B-city O", "O B-date O"]},
}


@pytest.mark.parametrize("table", AS_MANY.values(), ids=AS_MANY)
def test_a_tag_for_each_word_of_a_text_is_no_class(table, write):
    path = write("a.jsonl", rows_of(**table))
    assert not holds_words(pathlib.Path(path))
    with refused("A text has one label, not a tag for each of its words. Received: .*Write words and tags as li"):
        load_data(DataConfig(train_file=path))
    notes = load_data(DataConfig(train_file=path, task="classification")).notes
    assert any("warning: " in note and "hold a tag for each word of their texts" in note for note in notes), "as asked"
    with refused("a list of strings in each row.* for a text that is not cut into words, docs/other_formats.md"):
        read_sentences(path)


def test_lists_of_tags_beside_texts_are_no_labels(write):
    path = write("a.jsonl", rows_of(**each(str.split)))
    with refused("label once. Received: 'O' twice in .*; for tags of words, docs/other_formats.md"):
        load_data(DataConfig(train_file=path, task="multi_label_classification"))


OF_TEXTS = {
    "names of two words": {"text": ["red apple", "green pear"], "label": ["sweet fruit", "sour fruit"]},
    "one word each": {"text": ["good", "bad"], "label": ["positive", "negative"]},
    "more words": {"text": ["a good film", "a bad one here"], "label": ["very good", "very bad"]},
    "vitamins": {"text": ["an orange a day", "fish"], "label": ["B-1|B-6|B-12", "B-12"]},
    "blood": {"text": ["a donor in Rome", "one"], "label": ["O B-negative", "O"]},
    "a pair": {"text": ["a b", "c d"], "text_pair": ["a b", "c d"], "label": ["x x", "y y"]},
}


@pytest.mark.parametrize("table", OF_TEXTS.values(), ids=OF_TEXTS)
def test_names_of_classes_are_no_tags(table, write):
    path = write("a.jsonl", rows_of(**table) * 5)
    assert not holds_words(pathlib.Path(path))
    assert not any("tag" in note for note in load_data(DataConfig(train_file=path)).notes)


CLASSES = {"names": NAMES, "_type": "ClassLabel"}


def about(features):
    return json.dumps({"info": {"features": features}})


NAMED = [about({"tokens": {}, "ner_tags": own}) for own in ({"feature": CLASSES, "_type": "List"}, [CLASSES])]
OF_OTHERS = ["{", "[]", '{"info": null}', about({"ner_tags": {"feature": 1}}), None]


@pytest.mark.parametrize("metadata", [*NAMED, *OF_OTHERS])
def test_parquet_with_the_names_that_datasets_wrote(metadata, tmp_path):
    path, table = tmp_path / "a.parquet", pa.table({"tokens": WORDS, "ner_tags": [[1, 0], [2]]})
    parquet.write_table(table.replace_schema_metadata({"huggingface": metadata} if metadata else None), path)
    found = read_sentences(path)
    assert (found.words, found.unit, found.where(1)) == (WORDS, "row", f"{path}, row 2")
    assert found.tags == (TAGS if metadata in NAMED else [["1", "0"], ["2"]])


GOOD = {"tokens": ["a", "b"], "tags": ["O", "O"]}
BAD = {
    "lengths": ({**GOOD, "tags": ["O"]}, "one for each word. Received: tags=.'O'. for 2 words"),
    "no word": ({"tokens": [], "tags": []}, r"needs at least one word. Received: tokens=\[\]"),
    "an empty word": ({**GOOD, "tokens": ["a", ""]}, "none of them empty. Received: tokens=.'a', ''. in"),
    "a text": ({**GOOD, "tokens": "a b"}, "list of strings in each row,.* Received: tokens='a b'"),
    "numbers": ({**GOOD, "tokens": ["a", 1]}, "list of strings"),
    "none": ({**GOOD, "tokens": None}, "list of strings"),
    "surrogates": ({**GOOD, "tokens": ["a", "\ud800"]}, "valid Unicode"),
    "one tag": ({**GOOD, "tags": "O"}, "Tags must be a list"),
    "no tags": ({"tokens": ["a", "b"]}, "Tags must be a list"),
    "no tag": ({**GOOD, "tags": ["O", None]}, "needs a tag.* Received: None"),
    "a blank tag": ({**GOOD, "tags": ["O", " "]}, "needs a tag.* Received: ' '"),
    "a missing id": ({**GOOD, "tags": [0, -1]}, "needs a tag.* Received: -1"),
    "truth": ({**GOOD, "tags": ["O", True]}, "needs a tag.* Received: True"),
    "a fraction": ({**GOOD, "tags": ["O", 0.5]}, "needs a tag.* Received: 0.5"),
}


@pytest.mark.parametrize(("row", "message"), BAD.values(), ids=BAD)
def test_a_bad_sentence_is_an_error_or_skipped_and_counted(row, message, write):
    path = write("a.jsonl", [GOOD, row, GOOD])
    with refused(rf"{message}.*, line 2.* Or pass --skip_bad_rows\.$"):
        read_sentences(path)
    table = read_sentences(path, DataConfig(skip_bad_rows=True))
    assert (table.words, table.lines) == ([["a", "b"]] * 2, [1, 3])
    (note,) = table.notes
    assert note.startswith(f"{path}: 1 of 3 sentences skipped; the first: ") and "\n" not in note


NOT_FOUND = [
    (["tokens", "words", "tags"], {}, "tokens and words all look like the words"),
    (["tokens", "tags", "labels"], {}, "tags and labels all look like the tags"),
    (["sentence", "tags"], {}, "No column looks like the words"),
    (["tokens", "x"], {}, "No column looks like the tags"),
    (["tokens", "tags"], {"label_column": "ner"}, "label_column='ner' is not in the data"),
    (["tokens", "tags"], {"text_column": ["a"]}, "text_column='a' is not in the data"),
    (["tokens", "tags"], {"text_column": ["tokens", "tags"]}, "in one column"),
    (["tokens", "tags"], {"text_column": ["tags"], "label_column": "tags"}, "must be different columns"),
]


@pytest.mark.parametrize(("columns", "options", "message"), NOT_FOUND)
def test_columns_that_cannot_be_found(columns, options, message, write):
    with refused(message):
        read_sentences(write("a.jsonl", [{column: ["a"] for column in columns}]), DataConfig(**options))


def test_columns_as_asked_for(write):
    content = rows_of(tokens=[["x"], ["y"]], mine=[["a"], ["b"]], ner_tags=[[1], [2]], chunks=[["B"], ["I"]])
    table = read_sentences(write("a.jsonl", content), DataConfig(text_column=["mine"], label_column="chunks"))
    assert (table.words, table.tags) == ([["a"], ["b"]], [["B"], ["I"]])


def test_without_tags(write):
    path = write("a.jsonl", rows_of(id=["x", "y"], tokens=WORDS))
    file = open_sentences(path)
    assert (file.columns, file.unit) == (["id", "tokens"], "line")
    expected = [(WORDS[0], None, ["x"]), (WORDS[1], None, ["y"])]
    assert [(s.words, s.tags, s.others) for s in file.read(["id"])] == expected
    path = write("b.jsonl", rows_of(tokens=WORDS, tags=["bad", "bad"]))
    assert [s.words for s in open_sentences(path).read(())] == WORDS, "tags are not looked at"


def test_formats(write):
    assert read_sentences(io.BytesIO(b"a\tO\n"), DataConfig(input_format="tsv")).words == [["a"]]
    with refused("Received: standard input without input_format"):
        read_sentences(io.BytesIO(b"a\tO\n"))
    with refused("read from conll, jsonl, parquet. Received: input_format='csv'.*other_formats"):
        read_sentences(io.BytesIO(b"a\tO\n"), DataConfig(input_format="csv"))
    with refused(r"ends in \.conll, .*Received: .*a\.csv"):
        read_sentences(write("a.csv", "a,O\n"))
    assert read_sentences(write("b.csv", "a O\n"), DataConfig(input_format="conll")).tags == [["O"]]


TAGGED_XY, BAD_FIRST = [{"x": ["a"], "y": ["b"]}], {"tokens": None, "tags": None}
LIKE = {
    "lists": ("a.jsonl", [GOOD], {}, True),
    "a text": ("a.jsonl", [{"text": "a b", "label": 1}], {}, False),
    "several labels of a text": ("a.jsonl", [{"text": "a b", "labels": [1, 2]}], {}, False),
    "one label of words": ("a.jsonl", [{"tokens": ["a"], "label": 1}], {}, False),
    "other lengths": ("a.jsonl", [{"tokens": ["a"], "label": [1, 2]}], {}, True),  # Reading it says so.
    "no words": ("a.jsonl", [{"tokens": [], "label": []}], {}, True),
    "a bad first row": ("a.jsonl", [BAD_FIRST, {"tokens": ["a"], "tags": ["O"]}], {}, True),
    "no list of words": ("a.jsonl", [{"tokens": [1], "label": [1]}], {}, False),
    "other columns": ("a.jsonl", TAGGED_XY, {}, False),
    "columns that are named": ("a.jsonl", TAGGED_XY, {"text_column": ["x"], "label_column": "y"}, True),
    "conll by index": ("a.txt", "Ann B-PER\n\nleft O\n", {"text_column": ["0"]}, True),
    "conll by its ending and by name": ("a.conll", "Ann\tO\n", {"label_column": "ner"}, True),
    "no conll by name": ("a.tsv", "Ann\tB-PER\n\nleft\tO\n", {"text_column": ["text"]}, False),
    "conll by format": ("a.csv", "Ann\n", {"input_format": "conll"}, True),
    "csv": ("a.csv", "text,label\na,1\n", {}, False),
    "broken": ("a.jsonl", "{\n", {}, False),
    "no parquet": ("a.parquet", "{\n", {}, False),
}


@pytest.mark.parametrize(("name", "content", "options", "expected"), LIKE.values(), ids=LIKE)
def test_what_looks_tagged(name, content, options, expected, write):
    assert holds_words(pathlib.Path(write(name, content)), DataConfig(**options)) is expected


@pytest.mark.parametrize("texts, expected", [(["a b", "c", "d e"], False), (["1 000", "men"], True), ([], True)])
def test_batches_of_texts_in_memory_are_no_words(texts, expected):
    """As `list(data.as_numpy_iterator())` of a `tf.data.Dataset` with batches has them."""
    assert holds_words(given_table("train", [(texts, [1, 0, 1][: len(texts)])] * 2), DataConfig()) is expected


WORD_ROWS = {
    "Kaggle's": ("a.csv", 'Sentence #,Word,Tag\nSentence: 1,Ann,B-PER\n,left,O\nSentence: 2,"1,000",O\n', {}),
    "an index": ("a.tsv", "sentence_id\twords\tlabels\n0\tAnn\tB-PER\n0\tleft\tO\n1\tOslo\tB-LOC\n", {}),
    "parts of speech, .txt": ("a.txt", "sent_idx\ttext\tpos\n1\tAnn\tNNP\n1\tleft\tVBD\n", {}),
    "JSON lines": ("a.jsonl", rows_of(sid=[1.0, None, 2.0], token=["Ann", "left", "Oslo"], x=["a", "b", "c"]), {}),
    "columns that are named": (
        "a.csv",
        "sentid;form2;x\n1;Ann;a\n1;left;b\n",
        {"text_column": ["form2"], "delimiter": ";"},
    ),
}


@pytest.mark.parametrize(("name", "content", "options"), WORD_ROWS.values(), ids=WORD_ROWS)
def test_one_word_per_row_is_refused_wherever_it_is_read(name, content, options, write):
    config = DataConfig(train_file=write(name, content), **options)
    path = pathlib.Path(config.train_file)
    asked = {"predict": PredictConfig(input_file=config.train_file), "data": DataConfig(**options)}
    refusal = rf"{path} with one word per row, in '.*Write the sentences as lists: docs/other_formats.*--task=classif"
    with refused(refusal):
        load_data(detect_task(Config(model=SCRATCH, data=config)).data)
    with refused(refusal):
        open_sentences(path, config)
    with refused(refusal):
        entry_of(SENTENCES).open_jobs(Config(mode="predict", model=ModelConfig(model_name_or_path="m"), **asked))


OTHERS = {
    "texts with ids": "sentence_id,text,label\n1,good film,1\n1,bad film,0\n",
    "phrases": "PhraseId,SentenceId,Phrase,Sentiment\n1,1,A film of,1\n2,1,A,2\n",
    "a word each": "sentence_id,word,label\n1,good,1\n2,bad,0\n",
    "no sentences": "word,tag\nAnn,B-PER\nleft,O\n",
    "a sentence and a label": "sentence,label\ngood,1\n,0\n",
}


@pytest.mark.parametrize("content", OTHERS.values(), ids=OTHERS)
def test_other_tables_are_not_taken_for_words(content, write):
    assert not holds_words(pathlib.Path(write("a.csv", content)))


def test_a_classifier_of_single_words_is_warned_of(write):
    path = write("a.csv", "Word,Tag\nAnn,B-PER\nleft,O\n.,O\nOslo,B-LOC\n")
    config = DataConfig(train_file=path, text_column=("Word",), label_column="Tag")
    (note,) = (note for note in load_data(config).notes if "entity tags" in note)
    assert note.startswith("warning: ") and "write these as lists" in note


@pytest.mark.parametrize("name, count", [("a.conll", 150), pytest.param("a.jsonl", 1000, marks=pytest.mark.slow)])
def test_memory_does_not_grow_with_the_file(name, count, write):
    words, peaks = [f"word{i}" for i in range(30)], []
    sentence = [{"tokens": words}] if name == "a.jsonl" else "".join(f"{word} O\n" for word in words) + "\n"
    for size in (10, count, 4 * count):  # The first fills what Python keeps.
        path = write(name, sentence * size)
        tracemalloc.start()
        assert sum(len(s.words) for s in open_sentences(path).read(())) == 30 * size
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.2 * peaks[1], "four times the text"


@pytest.mark.skipif(not NCBI.exists(), reason="needs ../shared")
@pytest.mark.parametrize(("part", "size"), NCBI_SIZES)
def test_ncbi_disease(part, size):
    path = NCBI / f"{part}.txt"
    blocks = path.read_text().strip("\n").split("\n\n")
    table = read_sentences(path)
    assert len(table) == size and holds_words(path)
    for column, found in ((0, table.words), (3, table.tags)):
        assert found == [[line.split("\t")[column] for line in block.split("\n")] for block in blocks]
    assert [[line[:-1] for line in s.written] for s in open_sentences(path).read(())] == [b.split("\n") for b in blocks]
