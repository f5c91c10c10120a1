"""Directories of examples: a folder of texts for each class, and what `save_to_disk` of `datasets` writes."""

import json
import pathlib

import pyarrow as pa
import pytest

from tests.support.refusals import refused
from tests.support.task_runs import SENTENCES
from tfbert.config.data import DataConfig
from tfbert.config.modes import PredictConfig
from tfbert.data.rows import file_format, labelled_source, open_rows
from tfbert.errors import UsageError
from tfbert.tasks.registry import ENTRIES
from tfbert.tasks.tables import load_data


def load(path: pathlib.Path):
    """The task that the files are for, and the data."""
    config = DataConfig(train_file=str(path))
    assert config.problems() == []
    task = next((e.name for e in ENTRIES if e.holds(labelled_source(str(path)), config)), "auto")
    return task, load_data(DataConfig(train_file=str(path), task=task))


def saved(path: pathlib.Path, table: dict[str, list], features: dict, shards: int = 1) -> pathlib.Path:
    """As `datasets` 5.2 saves a data set; a directory that it wrote was read the same."""
    path.mkdir(parents=True)
    names = [f"data-{number:05}-of-{shards:05}.arrow" for number in range(shards)]
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    whole = pa.table(table).replace_schema_metadata(metadata)
    size = -(-len(whole) // shards)
    for number, name in enumerate(names):
        with pa.OSFile(str(path / name), "wb") as file, pa.ipc.new_stream(file, whole.schema) as writer:
            writer.write_table(whole.slice(number * size, size), max_chunksize=3)
    state = {"_data_files": [{"filename": name} for name in names], "_format_type": None, "_split": "train"}
    (path / "state.json").write_text(json.dumps(state))
    (path / "dataset_info.json").write_text(json.dumps({"features": features}))
    return path


CLASSES = {"names": ["neg", "pos"], "_type": "ClassLabel"}
TEXTS = {"text": [f"text {i}" for i in range(10)], "label": [i % 2 for i in range(10)]}
OF_TEXTS = {"text": {"dtype": "string", "_type": "Value"}, "label": CLASSES}


@pytest.mark.parametrize("shards", [1, 3])
def test_a_data_set_that_was_saved(tmp_path, shards):
    task, data = load(saved(tmp_path / "train", TEXTS, OF_TEXTS, shards))
    assert (task, data.task.label_names) == ("auto", ("neg", "pos"))
    assert [text for (text,) in data.train.contents()] == TEXTS["text"] and data.train.labels.tolist() == TEXTS["label"]
    assert data.train.where(7).endswith("train, row 8") or data.train.where(7) == "row 8"


def test_saved_words_with_names_of_tags(tmp_path):
    table = {"tokens": [["Ann", "left"], ["Oslo"]] * 4, "ner_tags": [[1, 0], [2]] * 4}
    tags = {"names": ["O", "B-PER", "B-LOC"], "_type": "ClassLabel"}
    features = {"tokens": {}, "ner_tags": {"feature": tags, "_type": "List"}}
    task, data = load(saved(tmp_path / "train", table, features))
    assert task == SENTENCES and data.task.label_names == ("O", "B-LOC", "B-PER")
    assert data.train.labels.tolist() == [2, 0, 1] * 4


def test_saved_texts_with_a_tag_for_each_word(tmp_path):
    table = {"text": ["Ann left for Oslo", "Oslo"] * 4, "label": [[1, 0, 0, 2], [2]] * 4}
    tags = {"names": ["O", "B-PER", "B-LOC"], "_type": "ClassLabel"}
    as_ids = saved(tmp_path / "ids", table, {"text": {}, "label": {"feature": tags, "_type": "List"}})
    as_text = saved(tmp_path / "text", table | {"label": ["B-PER O O B-LOC", "B-LOC"] * 4}, {"text": {}, "label": {}})
    for path, message in ((as_ids, "for tags of words"), (as_text, "not a tag for each of its words.* as lists:")):
        with pytest.raises(UsageError, match=f"{message}.* docs/other_formats.md"):
            load(path)


def test_a_saved_label_that_is_missing_and_files_that_are_not_whole(tmp_path):
    path = saved(tmp_path / "missing", TEXTS | {"label": [0] * 9 + [-1]}, OF_TEXTS)
    with pytest.raises(UsageError, match="-1, which stands for a missing one, .*missing, row 10"):
        load(path)
    path = saved(tmp_path / "half", TEXTS, OF_TEXTS)
    (file,) = path.glob("*.arrow")
    file.write_bytes(file.read_bytes()[:-300])
    with pytest.raises(UsageError, match="saved data set must be whole. Received: .*half"):
        load(path)
    for state, message in (
        ({"_data_files": [{"filename": "../missing/data-00000-of-00001.arrow"}]}, "must exist beside it"),
        ({"_data_files": []}, "lists its files"),
        ({"_data_files": [{"filename": "x"}], "_indices_data_files": [{"filename": "y"}]}, "takes all of their rows"),
    ):
        (path / "state.json").write_text(json.dumps(state))
        with pytest.raises(UsageError, match=message):
            load(path)


def test_several_sets_in_one_directory_are_named(tmp_path):
    saved(tmp_path / "all" / "train", TEXTS, OF_TEXTS)
    (tmp_path / "all" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(UsageError, match="holds one set. Received: .* with the sets train, test. .*all/train'"):
        load(tmp_path / "all")


def tree(path: pathlib.Path, **folders) -> pathlib.Path:
    for folder, texts in folders.items():
        (path / folder).mkdir(parents=True)
        for name, text in texts.items():
            (path / folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


REVIEWS = {f"{i}_9.txt": f"text {i}\nin two lines" for i in range(12)}


def test_a_folder_for_each_class(tmp_path, caplog):
    path = tree(tmp_path / "train", pos=REVIEWS, neg={**REVIEWS, ".DS_Store": b"\0"}, unsup={"0_0.txt": "x"})
    (path / "__MACOSX" / "pos").mkdir(parents=True)
    (path / "urls_pos.txt").write_text("not read")
    with caplog.at_level("INFO", "tfbert"):
        task, data = load(path)
    assert (task, data.task.label_names, len(data.train)) == ("auto", ("neg", "pos"), 24)
    assert data.train.labels.tolist() == [0] * 12 + [1] * 12
    assert [text for (text,) in data.train.contents()] == [REVIEWS[name] for name in sorted(REVIEWS)] * 2
    assert "1 text in 'unsup' left out" in caplog.text
    rows = [row for _, row in open_rows(path, file_format(path)).read(["id", "label"])]
    assert rows[0] == ["neg/0_9.txt", "neg"] and rows[-1] == ["pos/9_9.txt", "pos"]


def test_texts_alone_are_for_prediction(tmp_path):
    path = tree(tmp_path, new={"b.txt": "B", "a": "A"}) / "new"
    assert PredictConfig(input_file=str(path)).problems() == []
    file = open_rows(path, file_format(path))
    assert file.columns == ["id", "text"]
    assert [row for _, row in file.read(file.columns)] == [["a", "A"], ["b.txt", "B"]]
    with pytest.raises(UsageError, match="No column looks like the label"):
        load(path)


def test_directories_of_anything_else_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "train.csv").write_text("text,label\n")
    deep = tree(tmp_path / "deep", **{"train/pos": REVIEWS, "train/neg": REVIEWS})
    bad = tree(tmp_path / "bad", pos=REVIEWS, neg={"0.txt": b"caf\xe9"})
    for path, message in (
        (tmp_path / "empty", "empty', which is empty. Pass the files"),
        (tmp_path / "tables", "tables', with 'train.csv'. Pass the files"),
        (deep, "deep/train', with 'neg'. Pass '.*deep/train' if"),
        (bad, "UTF-8. Received: byte 0xe9 in .*neg/0.txt"),
    ):
        with refused(message):
            load(path)
