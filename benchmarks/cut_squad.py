"""Splits a file in SQuAD's form by article, so that no context is both trained on and evaluated on.

python benchmarks/cut_squad.py dev-v2.0.json train.json eval.json --every=4
"""

import argparse
import json
import pathlib


def main() -> None:
    """Writes both parts, and prints how many questions each has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("source", "train_file", "validation_file"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--every", type=int, default=4, help="one of this many articles goes to the validation file")
    args = parser.parse_args()
    whole = json.loads(args.source.read_text(encoding="utf-8"))
    for path, is_wanted in ((args.train_file, bool), (args.validation_file, lambda place: not place)):
        part = [article for number, article in enumerate(whole["data"], 1) if is_wanted(number % args.every)]
        path.write_text(json.dumps(whole | {"data": part}), encoding="utf-8")
        count = sum(len(paragraph["qas"]) for article in part for paragraph in article["paragraphs"])
        print(f"{path}: {len(part)} articles, {count:,} questions")


if __name__ == "__main__":
    main()
