"""Directories of examples: a folder of texts for each class."""

import pathlib

import pytest

from tests.support.refusals import refused
from tfbert.config.data import DataConfig
from tfbert.config.modes import PredictConfig
from tfbert.data.rows import file_format, input_source, open_rows
from tfbert.errors import UsageError
from tfbert.tasks.registry import ENTRIES
from tfbert.tasks.tables import load_data


def load(path: pathlib.Path):
    """The task that the files are for, and the data."""
    config = DataConfig(train_file=str(path))
    assert config.problems() == []
    task = next((e.name for e in ENTRIES if e.holds(input_source(str(path)), config)), "auto")
    return task, load_data(DataConfig(train_file=str(path), task=task))


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
    saved = tree(tmp_path, one={"state.json": "{}"}, several={"dataset_dict.json": "{}"})
    said = r"which datasets' save_to_disk wrote. Pass data.parquet, .*load_from_disk\('.*'\).to_parquet"
    for path, message in (
        (tmp_path / "empty", "empty', which is empty. Pass the files"),
        (tmp_path / "tables", "tables', with 'train.csv'. Pass the files"),
        (deep, "deep/train', with 'neg'. Pass '.*deep/train' if"),
        (saved / "one", said),
        (saved / "several", said),
        (bad, "UTF-8. Received: byte 0xe9 in .*neg/0.txt"),
    ):
        with refused(message):
            load(path)
