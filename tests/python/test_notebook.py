"""The notebook of `examples/`, executed; and an interrupted cell, run again."""

import pathlib
import signal
import threading

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

BOOK = pathlib.Path(__file__).parents[2] / "examples" / "quickstart.ipynb"


def client_of(book, directory, **options):
    resources = {"metadata": {"path": str(directory)}}
    return nbclient.NotebookClient(book, timeout=900, kernel_name="python3", resources=resources, **options)


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


CALL = """
run = tfbert.finetune(
    model="scratch/tiny", max_steps=STEPS, eval_steps=100000, logging_steps=5, save_steps=0, output_dir="runs/mine"
)
"""


@pytest.mark.slow
def test_an_interrupted_cell_resumes(tmp_path):
    """Interrupted while TensorFlow is imported, then in training; then it ends."""
    steps = 1500
    call = CALL.strip().replace("STEPS", str(steps))
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in ("import tfbert", *[call] * 3)])
    client = client_of(book, tmp_path, allow_errors=True)

    def ends(cell):
        return [(output.ename, output.evalue) for output in cell.outputs if output.output_type == "error"]

    def interrupted(index, is_time):
        """Runs a cell and interrupts it once something is seen of it."""
        cell, done = book.cells[index], threading.Event()

        def watch():
            while not done.wait(0.05):
                if is_time(cell):
                    client.km.provisioner.process.send_signal(signal.SIGINT)
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
        client.execute_cell(book.cells[3], 3)
        assert not ends(book.cells[3])
        assert "resuming at step" in "".join(map(text_of, book.cells[3].outputs))
    assert f'"global_step": {steps}' in (tmp_path / "runs" / "mine" / "all_results.json").read_text()
