"""The peer: Hugging Face's PyTorch Trainer at its best settings, on the same rows, in its own virtual environment.

    python -m venv peer && peer/bin/pip install torch "transformers>=5" accelerate
    peer/bin/python benchmarks/peers/hf_trainer.py --model=DIR --train_file=train.tsv --validation_file=dev.tsv

Reads tab-separated files with a header whose first column is the label, such as GLUE's SST-2. Prints a line when its
first update is done, and one JSON line at the end.
"""

import json
import time

import torch
from common import arguments, read
from fine_tuning import build_trainer
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, set_seed


def main():
    """Trains for one epoch."""
    args = arguments(__doc__)
    started = time.perf_counter()
    set_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForSequenceClassification.from_pretrained(args.model, num_labels=2)

    def encode(path, limit=0):
        texts, labels = read(path, limit)
        encoded = tokenizer(texts, truncation=True, max_length=args.max_seq_length)
        return [
            {"input_ids": ids, "attention_mask": mask, "labels": label}
            for ids, mask, label in zip(encoded["input_ids"], encoded["attention_mask"], labels.tolist(), strict=True)
        ]

    trainer = build_trainer(
        model,
        encode(args.train_file, args.max_train_examples),
        DataCollatorWithPadding(tokenizer),
        seed=args.seed,
        bf16=args.bf16,
        eval_dataset=encode(args.validation_file),
        compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())},
    )
    ready = time.perf_counter() - started
    trained = trainer.train().metrics
    scores = trainer.evaluate()
    print(
        json.dumps(
            {
                "examples_per_second": trained["train_samples_per_second"],
                "eval_accuracy": scores["eval_accuracy"],
                "seconds_to_ready": round(ready, 1),
                "torch": torch.__version__,
                "bf16": args.bf16,
                "seed": args.seed,
            }
        )
    )


if __name__ == "__main__":
    main()
