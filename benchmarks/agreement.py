"""Do evaluate, predict, the SavedModel and PyTorch agree on one model? Each runs in its own process.

    python benchmarks/agreement.py --model=RUN --file=dev.tsv --torch_python=peer/bin/python

`RUN` is the output directory of a classification run on single texts; the file has a header and a label column. Checks
that every label is the same and that logits differ by at most 1e-4. Prints one JSON line; the exit status is 1 if they
disagree. Without `--torch_python`, PyTorch is left out, and the line says so.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent
TOLERANCE = 1e-4
CLEAN = """
import json, sys
import tensorflow as tf, tensorflow_text
loaded = tf.saved_model.load(sys.argv[1])
texts = json.load(open(sys.argv[2]))
logits, labels = [], []
for start in range(0, len(texts), 32):
    found = loaded.signatures["serving_default"](text=tf.constant(texts[start : start + 32]))
    logits += found["logits"].numpy().tolist()
    labels += [label.decode() for label in found["label"].numpy()]
assert not {"tfbert", "transformers", "torch"} & set(sys.modules)
json.dump({"logits": logits, "labels": labels}, open(sys.argv[3], "w"))
"""


def main() -> int:
    """Runs all of them and compares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--file", required=True)
    parser.add_argument("--torch_python", default="")
    args = parser.parse_args()
    from tfbert.data.files import read_file  # Runs from the repository's root, installed or not.

    table = read_file(args.file)
    assert table.text_pair is None, "a file of single texts"
    saved = json.loads((pathlib.Path(args.model) / "config.json").read_text())
    length = saved["tfbert"]["max_seq_length"]
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        (scratch / "texts.json").write_text(json.dumps(table.text))
        command("evaluate", args.model, f"--validation_file={args.file}", f"--output_dir={scratch / 'evaluated'}")
        evaluated = json.loads((scratch / "evaluated" / "eval_results.json").read_text())
        command("predict", args.model, f"--input_file={args.file}", f"--output_file={scratch / 'out.jsonl'}")
        rows = [json.loads(line) for line in (scratch / "out.jsonl").read_text().splitlines()]
        found = {"predict": ([row["logits"] for row in rows], [row["label"] for row in rows])}
        command("export", args.model, f"--output_dir={scratch / 'exported'}")
        done(sys.executable, "-I", "-c", CLEAN, *(scratch / n for n in ("exported", "texts.json", "clean.json")))
        found["SavedModel"] = read(scratch / "clean.json")
        if args.torch_python:
            peer = ROOT / "benchmarks" / "peers" / "torch_predict.py"
            options = (f"--model={args.model}", f"--texts={scratch / 'texts.json'}", f"--max_seq_length={length}")
            done(args.torch_python, peer, "logits", *options, f"--output={scratch / 'torch.json'}")
            found["PyTorch"] = read(scratch / "torch.json")

    names = [saved["id2label"][str(i)] for i in range(len(saved["id2label"]))]
    reference, labels = np.array(found["predict"][0]), found["predict"][1]
    confusion = np.zeros((len(names), len(names)), int)
    for label, predicted in zip(table.labels, labels, strict=True):
        confusion[names.index(label), names.index(predicted)] += 1
    report = {
        "rows": len(labels),
        "accuracy": float(np.trace(confusion) / len(labels)),
        "evaluate: same confusion matrix": evaluated["eval_confusion_matrix"]["rows"] == confusion.tolist(),
    }
    agrees = report["evaluate: same confusion matrix"]
    for name, (logits, other) in found.items():
        if name != "predict":
            error = float(np.abs(np.array(logits) - reference).max())
            differ = sum(a != b for a, b in zip(other, labels, strict=True))
            report[name] = {"largest logit difference": error, "labels that differ": differ}
            agrees = agrees and error <= TOLERANCE and not differ
    report["PyTorch"] = report.get("PyTorch", "left out")
    print(json.dumps(report | {"agree": bool(agrees)}))
    return 0 if agrees else 1


def command(mode: str, model: str, *options: str) -> None:
    """One run of the command."""
    done(sys.executable, ROOT / "run_finetune.py", f"--mode={mode}", f"--model={model}", *options)


def done(*words) -> None:
    """Runs a process; if it fails, exits and shows its output."""
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{words[:3]} failed:\n{result.stdout}{result.stderr}")


def read(path: pathlib.Path) -> tuple[list, list]:
    """(logits, labels) that another process wrote."""
    values = json.loads(path.read_text())
    return values["logits"], values["labels"]


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
