"""Small runs of everything on two checkouts: do they write the same bits?

    python benchmarks/same_bits.py BEFORE AFTER --data=data

`data` is what `python examples/make_data.py data` writes, once for both. In each checkout, in a process of its own: the
six tasks and pre-training, with dropout, on parts of a batch; packing, LAMB, bfloat16, seeds; prediction, evaluation,
Python's `load` and records. Prints a line for each: the first 12 digits of the SHA-256 of its weights, predictions or
scores, and `same` or both numbers. Status 1 if something differs.
"""

import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

MODEL = "--model=scratch/tiny --device=cpu --max_steps=6 --global_batch_size=16 --gradient_accumulation_steps=2"
TEXTS = "--task=classification --train_file=train.tsv --validation_file=dev.tsv --max_seq_length=32"
TAGS = "--task=token_classification --train_file=train.conll --validation_file=dev.conll"
TRAINED = {
    "classification": TEXTS,
    "regression": "--task=regression --label_column=stars --train_file=stars.jsonl --validation_file=stars.jsonl",
    "several": "--task=multi_label_classification --train_file=several.jsonl --validation_file=several.jsonl",
    "tagging": TAGS,
    "answering": "--task=question_answering --train_file=train.json --validation_file=dev.json --max_seq_length=64 "
    "--doc_stride=32",
    "choosing": "--task=multiple_choice --train_file=train_choices.jsonl --validation_file=dev_choices.jsonl "
    "--max_seq_length=48",
    "packed": f"{TEXTS} --batching=packed",
    "lamb": f"{TAGS} --optimizer=lamb --lr_schedule=cosine --gradient_checkpointing",
    "bfloat16": f"{TEXTS} --mixed_precision --mixed_precision_dtype=bfloat16",
    "seeds": f"{TEXTS} --seeds=1,2",
}
PREDICTED = {
    "classification": "new.csv",
    "regression": "new.csv",
    "several": "stars.jsonl",
    "tagging": "new.conll",
    "answering": "asked.jsonl",
    "choosing": "asked_choices.jsonl",
}


def main() -> int:
    """Runs all in both checkouts, and compares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="+", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        digests_here()
        return 0
    found = [digests_of(checkout.resolve(), args.data) for checkout in args.checkouts]
    differ = False
    for name in dict.fromkeys(name for each in found for name in each):
        numbers = [each.get(name, "none") for each in found]
        same = len({*numbers}) == 1
        differ |= not same
        print(f"{name:24}", numbers[0] if same else " ".join(numbers), "same" if same and len(found) > 1 else "")
    return int(differ)


def digests_of(checkout: pathlib.Path, data: pathlib.Path) -> dict[str, str]:
    """All digests of one checkout, from a process that has its code."""
    command = [sys.executable, pathlib.Path(__file__).resolve(), checkout, f"--data={data}", "--here"]
    environment = os.environ | {"PYTHONPATH": str(checkout), "TF_CPP_MIN_LOG_LEVEL": "3"}
    with tempfile.TemporaryDirectory() as directory:
        for path in data.iterdir():
            (pathlib.Path(directory) / path.name).write_bytes(path.read_bytes())
        done = subprocess.run(command, cwd=directory, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def digests_here() -> None:
    """Runs everything in the working directory, with the library that is imported, and prints the digests."""
    import tfbert
    from tfbert.__main__ import main as command

    write_more_data()
    digests = {}

    def run(word: str, name: str, flags: str, files: str) -> None:
        status = command(["tfbert", word, *flags.split()])
        digests[name] = f"status {status}" if status else digest(files)

    for name, flags in TRAINED.items():
        run("finetune", f"{name}: weights", f"{MODEL} {flags} --output_dir={name}", f"{name}/**/model.safetensors")
        digests[f"{name}: scores"] = scores(f"{name}/**/all_results.json")
    for name, file in PREDICTED.items():
        out = f"predicted.{name}.{'conll' if name == 'tagging' else 'jsonl'}"
        run(
            "finetune",
            f"{name}: predicted",
            f"--mode=predict --model={name} --input_file={file} --output_file={out}",
            out,
        )
    evaluate = "--mode=evaluate --model=classification --validation_file=test.tsv --output_dir=evaluated"
    run("finetune", "evaluated", evaluate, "none")
    digests["evaluated"] = scores("evaluated/*.json")
    prepare = "--mode=prepare --input_files=corpus.txt --learn_vocab=500 --max_seq_length=32 --output_dir=records"
    run("pretrain", "records", prepare, "records/*.t*")  # Shards and the vocabulary.
    run("pretrain", "pretrained", f"{MODEL} --train_records=records --output_dir=bert", "bert/model.safetensors")
    said = [tfbert.load("classification")(["good", "bad"]), tfbert.load("tagging")(["Anna Berg lives in Oslo ."])]
    digests["loaded"] = hashlib.sha256(repr(said).encode()).hexdigest()[:12]
    print(json.dumps(digests))


def write_more_data() -> None:
    """A file of several labels, and one of numbers."""
    rows = [line.split("\t") for line in pathlib.Path("dev.tsv").read_text().splitlines()[1:101]]
    several = [{"text": text, "labels": [f"is {label}", *text.split()[:1]]} for label, text in rows]
    stars = [{"text": text, "stars": len(text) / 10} for _, text in rows]
    for name, items in (("several.jsonl", several), ("stars.jsonl", stars)):
        pathlib.Path(name).write_text("".join(json.dumps(item) + "\n" for item in items))


def digest(pattern: str) -> str:
    """The first digits of the SHA-256 of files."""
    files = [name.read_bytes() for name in sorted(pathlib.Path().glob(pattern))]
    return hashlib.sha256(b"".join(files)).hexdigest()[:12] if files else "no file"


def scores(pattern: str) -> str:
    """The digest of the numbers that do not depend on the time."""
    results = [json.loads(name.read_text()) for name in sorted(pathlib.Path().glob(pattern))]
    kept = [
        {key: value for key, value in each.items() if key.startswith(("eval_", "test_", "train_loss"))}
        for each in results
    ]
    timed = ("runtime", "per_second")
    kept = [{key: value for key, value in each.items() if not key.endswith(timed)} for each in kept]
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:12] if any(kept) else "no scores"


if __name__ == "__main__":
    sys.exit(main())
