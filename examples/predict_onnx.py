"""Labels the texts of a file by an export to ONNX, without TensorFlow and without tfbert.

    pip install onnxruntime tokenizers numpy
    python examples/predict_onnx.py as_onnx texts.txt predicted.tsv

`as_onnx` is what `--mode=export --export_format=onnx` wrote, of a model that gives each text, or pair of texts, one of
several classes; others are refused. `texts.txt` has a text a line, a pair's two with a tab between them. The table is
that of `--mode=predict`: `id`, the line's number from 0, `label`, and a probability for each class.
"""

import argparse
import csv
import itertools
import json
import pathlib
import sys

import numpy as np
import onnxruntime
import tokenizers

KNOWN = {"format", "file", "num_texts", "max_seq_length", "label_names", "weights", "largest_logit_error"}
"""What `export_results.json` says of such a model. Thresholds, windows and the like are of others."""
INPUTS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
"""By the model's names, what tokenizers calls them."""
LINES = 50_000
"""In memory at a time."""


def main() -> None:
    """Writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("texts", type=pathlib.Path)
    parser.add_argument("predicted", type=pathlib.Path)
    parser.add_argument("--batch_size", type=int, default=64, help="rows that are computed together")
    args = parser.parse_args()
    for path, is_read in ((args.model / "export_results.json", True), (args.texts, True), (args.predicted, False)):
        if path.exists() != is_read:
            sys.exit(f"A file must {'be there' if is_read else 'be new'}. Received: {path}. Check the path.")
    facts = json.loads((args.model / "export_results.json").read_text(encoding="utf-8"))
    model = onnxruntime.InferenceSession(args.model / facts["file"], providers=["CPUExecutionProvider"])
    others = sorted(facts.keys() - KNOWN)
    if others or len(model.get_outputs()[0].shape) != 2 or len(facts["label_names"]) < 2:
        received = f"{args.model} with {', '.join(others) or 'other outputs'}"
        rule = "This script is for models that give a text, cut where it is long, one of several classes."
        sys.exit(f"{rule} Received: {received}. Use --mode=predict.")
    words = tokenizers.Tokenizer.from_file(str(args.model / "tokenizer.json"))
    words.enable_truncation(facts["max_seq_length"])
    with args.texts.open(encoding="utf-8-sig") as lines, args.predicted.open("x", encoding="utf-8", newline="") as out:
        table = csv.writer(out, dialect="excel-tab", lineterminator="\n")
        table.writerow(["id", "label", *(f"probability_{name}" for name in facts["label_names"])])
        numbers = itertools.count()
        while chunk := [line.rstrip("\n") for line in itertools.islice(lines, LINES)]:
            texts = [tuple(line.split("\t")) for line in chunk] if facts["num_texts"] == 2 else chunk
            if facts["num_texts"] == 2 and any(len(pair) != 2 for pair in texts):
                sys.exit(f"A line of {args.texts} must have two texts with a tab between them.")
            for shares in probabilities(model, words.encode_batch(texts), args.batch_size):
                label = facts["label_names"][shares.argmax()]
                table.writerow([next(numbers), label, *(f"{share:.7g}" for share in shares)])


def probabilities(model: onnxruntime.InferenceSession, rows: list[tokenizers.Encoding], batch_size: int) -> np.ndarray:
    """A probability for each row and class, `[rows, classes]`."""
    names = [each.name for each in model.get_inputs()]
    # Rows of one length share a batch, so that hardly anything is padding.
    order = np.argsort([len(row) for row in rows], kind="stable")
    found = []
    for start in range(0, len(order), batch_size):
        batch = [rows[row] for row in order[start : start + batch_size]]
        for row in batch:
            row.pad(len(batch[-1]))  # With whatever: the mask says that it is nothing.
        inputs = {name: np.array([getattr(row, INPUTS[name]) for row in batch], np.int32) for name in names}
        found.append(model.run(["logits"], inputs)[0])
    logits = np.empty((len(rows), found[0].shape[1]), np.float32)
    logits[order] = np.concatenate(found)
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


if __name__ == "__main__":
    main()
