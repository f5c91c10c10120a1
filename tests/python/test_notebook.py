"""The notebook of `examples/`, executed; and an interrupted cell, run again."""

import pathlib

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

BOOK = pathlib.Path(__file__).parents[2] / "examples" / "quickstart.ipynb"
SECONDS = 900


def client_of(book, directory, **options):
    resources = {"metadata": {"path": str(directory)}}
    return nbclient.NotebookClient(book, timeout=SECONDS, kernel_name="python3", resources=resources, **options)


def text_of(output):
    return output.get("text") or output.get("data", {}).get("text/plain") or output.get("evalue", "")


@pytest.mark.slow
def test_the_notebook_runs(tmp_path):
    book = nbformat.read(BOOK, as_version=4)
    client_of(book, tmp_path).execute()
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    training = next(cell for cell in cells if cell.source.startswith("run = "))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.get("name") == "stderr"], "what Jupyter shows in red"
    # Those of short passes are empty when they are done.
    (bar,) = filter(None, (text_of(output) for output in training.outputs if output.output_type == "display_data"))
    assert bar.startswith("100%") and "step 132/132" in bar
    shown = "\n".join(text_of(output).rstrip("\n") for output in training.outputs)
    assert "model      scratch/tiny" in shown and "evaluation at step 22" in shown and "saved to runs/" in shown
    wide = [line for line in shown.splitlines() if len(line) > 110]
    assert not wide, wide
    (loop,) = [cell for cell in cells if "quiet=True" in cell.source]
    assert [output.output_type for output in loop.outputs] == ["execute_result"]
    assert "Did you mean num_train_epochs?" in text_of(cells[-1].outputs[0])
    assert (tmp_path / "runs" / "quickstart" / "report.html").is_file()
