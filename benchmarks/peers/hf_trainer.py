"""The peer: Hugging Face's PyTorch Trainer at its best settings, on the same rows, in its own virtual environment.

    python -m venv peer && peer/bin/pip install torch "transformers>=5" accelerate
    peer/bin/python benchmarks/peers/hf_trainer.py --model=DIR --train_file=train.tsv --validation_file=dev.tsv

Reads tab-separated files with a header whose first column is the label, as GLUE's SST-2. Prints a line when its first
update is done, and one JSON line at its end.
"""

import json
import time

import torch
from common import arguments, read
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
