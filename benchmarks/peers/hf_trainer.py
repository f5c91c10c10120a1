"""The peer: Hugging Face's PyTorch Trainer at its best settings, on the same rows, in its own virtual environment.

    python -m venv peer && peer/bin/pip install torch transformers accelerate
    peer/bin/python benchmarks/peers/hf_trainer.py --model=DIR --train_file=train.tsv --validation_file=dev.tsv

Reads tab-separated files with a header whose first column is the label, as GLUE's SST-2. Prints a line when its first
update is done, and one JSON line at its end.
"""

import argparse
import json
import pathlib
import time

import numpy as np
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


class SayFirst(TrainerCallback):
    """Prints a line after the first update."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 1:
            print("first update done", flush=True)


def read(path, limit, columns):
    """Rows of a TSV file; the same random subset as tfbert's `--max_train_examples`."""
    lines = pathlib.Path(path).read_bytes().decode("utf-8").split("\n")[1:]
    rows = [line.rstrip("\r").split("\t") for line in lines if line.strip()]
    if limit:
        rng = np.random.Generator(np.random.PCG64(0))
        rows = [rows[i] for i in np.sort(rng.permutation(len(rows))[:limit])]
    label, text = columns
    return [row[text] for row in rows], [int(row[label]) for row in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--train_file", required=True)
    parser.add_argument("--validation_file", required=True)
    parser.add_argument("--max_train_examples", type=int, default=0)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()
    started = time.perf_counter()
    set_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForSequenceClassification.from_pretrained(args.model, num_labels=2)

    def encode(path, limit=0):
        texts, labels = read(path, limit, (0, 1))
        encoded = tokenizer(texts, truncation=True, max_length=args.max_seq_length)
        return [
            {"input_ids": ids, "attention_mask": mask, "labels": label}
            for ids, mask, label in zip(encoded["input_ids"], encoded["attention_mask"], labels, strict=True)
        ]

    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir="/tmp/tfbert-peer",
            per_device_train_batch_size=32,
            per_device_eval_batch_size=32,
            num_train_epochs=1,
            learning_rate=5e-5,
            warmup_steps=0.1,
            weight_decay=0.01,
            optim="adamw_torch_fused",
            train_sampling_strategy="group_by_length",
            bf16=args.bf16,
            use_cpu=not torch.cuda.is_available(),
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            logging_steps=1000,
            seed=args.seed,
        ),
        train_dataset=encode(args.train_file, args.max_train_examples),
        eval_dataset=encode(args.validation_file),
        data_collator=DataCollatorWithPadding(tokenizer),
        callbacks=[SayFirst()],
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
