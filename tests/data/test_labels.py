"""Labels that stand for none: refused alike in every format, classes where that was said."""

import gzip
import json

import pyarrow
import pytest
from pyarrow import parquet

from tfbert.config.data import DataConfig
from tfbert.data.files import read_file
from tfbert.data.labels import NAMES_OR_MISSING
from tfbert.errors import UsageError
from tfbert.tasks.examples import load_data
from tfbert.tasks.texts.source import read_labelled

FORMATS = ["a.tsv", "a.csv", "a.tsv.gz", "a.jsonl", "a.parquet"]


# pandas.io.parsers.readers.read_csv, na_values, of pandas 2.2.
OF_PANDAS = " |#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|None|n/a|nan|null"


def write(path, labels):
    """Rows with these labels, in the format that the path's ending says."""
    rows = [{"text": f"text {i}", "label": label} for i, label in enumerate(labels)]
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        separator = "," if path.suffix == ".csv" else "\t"
        lines = [separator.join(["text", "label"]), *(f"{row['text']}{separator}{row['label'] or ''}" for row in rows)]
        data = "\n".join(lines).encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("label", [*OF_PANDAS.split("|"), "NAN", " N/A ", "", None])
def test_a_label_that_stands_for_none_is_refused_in_every_format(tmp_path, name, label):
    path = write(tmp_path / name, ["0", "1", label])
    with pytest.raises(UsageError, match=rf"needs a label\. Received: .* in .*{name}, (line [34]|row 3)\.") as caught:
        read_file(path)
    assert "\n" not in str(caught.value)
    assert ("--task=classification" in str(caught.value)) == ((label or "").strip() in NAMES_OR_MISSING)


@pytest.mark.parametrize("name", FORMATS)
def test_names_of_classes(tmp_path, name):
    labels = ["none", "NONE", "Null", "na", "nano", "-", "unknown"]
    assert read_file(write(tmp_path / name, labels)).labels == labels


@pytest.mark.parametrize("name", FORMATS)
def test_words_are_classes_where_the_task_says_so_and_nan_never_is(tmp_path, name):
    path = write(tmp_path / name, ["None", "NA", "favor"])
    assert load_data(DataConfig(train_file=path, task="classification")).task.label_names == ("NA", "None", "favor")
    with pytest.raises(UsageError, match="'None', which stands for a missing one"):
        load_data(DataConfig(train_file=path))
    path = write(tmp_path / f"b{name}", ["None", "NaN", "favor"])
    with pytest.raises(UsageError, match="'NaN', which stands for a missing one"):
        load_data(DataConfig(train_file=path, task="classification"))


def test_a_saved_models_classes_are_classes(tmp_path):
    path = write(tmp_path / "a.tsv", ["None", "favor"])
    config = DataConfig(validation_file=path)
    assert read_labelled(config, ("none", "favor"), [])["eval"].labels == ["None", "favor"]
    with pytest.raises(UsageError, match="'None', which stands for a missing one"):
        read_labelled(config, ("against", "favor"), [])
    path = write(tmp_path / "b.tsv", ["NaN", "favor"])
    assert read_labelled(DataConfig(validation_file=path), ("nan", "favor"), [])["eval"].labels[0] == "NaN"
