"""Compares the ids of `tfbert.tokens.tokenizer` with Hugging Face's `BertTokenizerFast` on every text of the real data.

    python benchmarks/tokenizer_exactness.py --data_dir=$TFBERT_DATA_DIR --vocab_dir=$TFBERT_VOCAB_DIR

`data_dir` holds sst2/, imdb/, rte/ and scicite/; `vocab_dir` holds the three vocabularies of `VOCABULARIES`. Texts are
not cut, but the pairs of RTE are compared a second time, cut to 64 tokens. Special tokens written in a text are plain
text on both sides. Prints Markdown tables; the exit status is 1 if any row differs.
"""

import argparse
import gzip
import json
import os
import pathlib
import platform
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
import tokenizers
import transformers

from tfbert.tokens.tokenizer import BertTokenizer

VOCABULARIES = {
    "uncased": ("bert_base_uncased_vocab.txt", True),
    "cased": ("bert_base_cased_vocab.txt", False),
    "scibert": ("scibert_scivocab_uncased.txt", True),
}
UNCUT = 1 << 20


def read_tsv(path, *columns):
    rows = [line.split("\t") for line in path.read_bytes().decode().replace("\r\n", "\n").rstrip("\n").split("\n")]
    return [[row[rows[0].index(column)] for row in rows[1:]] for column in columns]


def read_jsonl(path):
    data = path.read_bytes()
    lines = (gzip.decompress(data) if path.suffix == ".gz" else data).decode().rstrip("\n").split("\n")
    return [json.loads(line)["text"] for line in lines]


def read_sets(folder):
    """Name -> (texts, second texts or None, max_seq_length)."""
    sets = {"sst2 train": (*read_tsv(folder / "sst2/train.tsv", "sentence"), None, UNCUT)}
    for split in ("dev", "test"):
        sets[f"sst2 {split}"] = (*read_tsv(folder / f"sst2/{split}.tsv", "content"), None, UNCUT)
    for split in ("train", "test"):
        sets[f"imdb {split}"] = (read_jsonl(folder / f"imdb/{split}.jsonl.gz"), None, UNCUT)
    for split in ("train", "dev"):
        first, second = read_tsv(folder / f"rte/{split}.tsv", "sentence1", "sentence2")
        sets[f"rte {split}"] = (first, second, UNCUT)
        sets[f"rte {split}, cut to 64"] = (first, second, 64)
    for split in ("train", "dev", "test"):
        sets[f"scicite {split}"] = (read_jsonl(folder / f"scicite/{split}.jsonl"), None, UNCUT)
    return sets


def rows_of(encoded):
    return np.split(encoded.flat, encoded.row_splits[1:-1])


def seconds_of(function, *args, **kwargs):
    start = time.perf_counter()
    result = function(*args, **kwargs)
    return time.perf_counter() - start, result


def compare(name, tokenizer, reference, sets):
    """Prints one line per set; returns how many rows differ."""
    total = 0
    for set_name, (first, second, max_seq_length) in sets.items():
        ours, encoded = seconds_of(tokenizer.encode, first, second, max_seq_length=max_seq_length)
        theirs, wanted = seconds_of(
            reference, first, second, truncation=True, max_length=max_seq_length, split_special_tokens=True
        )
        segments = (types.index(1) if 1 in types else len(types) for types in wanted["token_type_ids"])
        differing = [
            i
            for i, (row, want, start, segment) in enumerate(
                zip(rows_of(encoded), wanted["input_ids"], encoded.second_start, segments, strict=True)
            )
            if row.tolist() != want or start != segment
        ]
        print(
            f"| {name} | {set_name} | {len(encoded):,} | {len(encoded.flat):,} | {len(differing)} "
            f"| {ours:.2f} | {theirs:.2f} |",
            flush=True,
        )
        for i in differing[:5]:
            print(f"  differs: row {i} {ascii(first[i])[:300]}", file=sys.stderr)
        total += len(differing)
    return total


def time_batches(tokenizer, reference, texts, rounds=5):
    """Seconds of both on the same texts, in turns; per round: (ours, theirs, our CPU seconds, their CPU seconds)."""
    times = []
    for _ in range(rounds):
        cpu = [time.process_time()]
        ours, _ = seconds_of(tokenizer.encode, texts, max_seq_length=UNCUT)
        cpu.append(time.process_time())
        theirs, result = seconds_of(reference, texts, return_attention_mask=False, return_token_type_ids=False)
        cpu.append(time.process_time())
        del result  # Millions of Python integers: freed here, not while the other side is timed.
        times.append((ours, theirs, cpu[1] - cpu[0], cpu[2] - cpu[1]))
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", type=pathlib.Path, default=os.environ.get("TFBERT_DATA_DIR"))
    parser.add_argument("--vocab_dir", type=pathlib.Path, default=os.environ.get("TFBERT_VOCAB_DIR"))
    parser.add_argument("--timing", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    if args.data_dir is None or args.vocab_dir is None:
        parser.error("pass --data_dir and --vocab_dir, or set TFBERT_DATA_DIR and TFBERT_VOCAB_DIR")
    versions = {
        "Python": platform.python_version(),
        "tensorflow": tf.__version__,
        "tensorflow-text": tf_text.__version__,
    }
    versions |= {"transformers": transformers.__version__, "tokenizers": tokenizers.__version__}
    print(", ".join(f"{name} {version}" for name, version in versions.items()) + f"; {os.cpu_count()} CPU cores\n")

    # Suppresses the warning that texts are longer than the model allows: they are uncut on purpose.
    transformers.logging.set_verbosity_error()
    sets = read_sets(args.data_dir)
    print("| vocabulary | set | rows | tokens | rows that differ | tfbert s | BertTokenizerFast s |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    total = 0
    for name, (file, do_lower_case) in VOCABULARIES.items():
        tokenizer = BertTokenizer.from_vocab_file(args.vocab_dir / file, do_lower_case=do_lower_case)
        reference = transformers.BertTokenizerFast(
            vocab_file=str(args.vocab_dir / file), do_lower_case=do_lower_case, model_max_length=UNCUT
        )
        total += compare(name, tokenizer, reference, sets)
        if name == "uncased" and args.timing:
            times = time_batches(tokenizer, reference, sets["imdb train"][0])
    print(f"\nRows that differ: {total}")

    if args.timing:
        print("\nSeconds for the 25,000 training reviews of IMDB, uncased, in turns; CPU: summed over all cores:\n")
        print("| round | tfbert | BertTokenizerFast | ratio | tfbert CPU | BertTokenizerFast CPU | ratio |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
        for name, row in [*enumerate(times, 1), ("best of each", [min(column) for column in zip(*times, strict=True)])]:
            ours, theirs, cpu, their_cpu = row
            print(
                f"| {name} | {ours:.2f} | {theirs:.2f} | {theirs / ours:.2f} "
                f"| {cpu:.2f} | {their_cpu:.2f} | {their_cpu / cpu:.2f} |"
            )
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main())
