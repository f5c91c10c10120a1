"""The notebook of `examples/`, executed; and an interrupted cell, run again."""

import pathlib
import threading

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
    bars = [text_of(output) for output in training.outputs if output.output_type == "display_data"]
    assert [text for text in bars if "step 132/132" in text] == bars[:1] and bars[0].startswith("100%")
    shown = "".join(text_of(output) for output in training.outputs)
    assert (
        "model      scratch/tiny" in shown and "evaluation at step 22" in shown and "saved to runs/quickstart" in shown
    )
    assert max(map(len, shown.splitlines())) <= 100
    (loop,) = [cell for cell in cells if "quiet=True" in cell.source]
    assert [output.output_type for output in loop.outputs] == ["execute_result"]
    assert "Did you mean num_train_epochs?" in text_of(cells[-1].outputs[0])
    assert (tmp_path / "runs" / "quickstart" / "report.html").is_file()


CALL = """
run = tfbert.finetune(
    model="scratch/tiny", max_steps=STEPS, eval_steps=100000, logging_steps=5, save_steps=0, output_dir="runs/mine"
)
"""


@pytest.mark.slow
def test_an_interrupted_cell_resumes(tmp_path):
    """Interrupted while TensorFlow is imported, then twice in a row, then once; the last run of the cell ends."""
    steps = 1500
    call = CALL.strip().replace("STEPS", str(steps))
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in ("import tfbert", *[call] * 4)])
    client = client_of(book, tmp_path, allow_errors=True)

    def ends(cell):
        return [(output.ename, output.evalue) for output in cell.outputs if output.output_type == "error"]

    def interrupted(index, is_time, times=1):
        """Runs a cell and interrupts it once something is seen of it."""
        cell, done = book.cells[index], threading.Event()

        def watch():
            while not done.wait(0.05):
                if is_time(cell):
                    for _ in range(times):
                        client.km.provisioner.process.send_signal(2)
                    return

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        client.execute_cell(cell, index)
        done.set()
        thread.join()
        return ends(cell)

    def trains(cell):
        return any("step " in text_of(output) for output in cell.outputs if output.output_type == "display_data")

    with client.setup_kernel():
        client.execute_cell(book.cells[0], 0)
        assert interrupted(1, lambda cell: True) == [("KeyboardInterrupt", "")]
        assert not (tmp_path / "runs").exists()
        ((kind, text),) = interrupted(2, trains)
        assert kind == "Preempted" and text.endswith("the same call resumes in runs/mine")
        ((kind, _),) = interrupted(3, trains, times=2)
        assert kind == "KeyboardInterrupt"
        client.execute_cell(book.cells[4], 4)
        assert not ends(book.cells[4])
        assert "resuming at step" in "".join(map(text_of, book.cells[4].outputs))
    assert f'"global_step": {steps}' in (tmp_path / "runs" / "mine" / "all_results.json").read_text()
