"""Hugging Face's Trainer with and without gradient accumulation: loss and gradient norm of the first update.

    python -m venv peer && peer/bin/pip install torch "transformers>=5" accelerate
    peer/bin/python benchmarks/peers/accumulation.py

The same 8 examples are one batch of 8, and then 4 micro-batches of 2, for a small BERT with random weights and without
dropout. Both ways should give the same loss and the same norm. Prints a JSON line.
"""

import json
import tempfile

import torch
import transformers
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    Trainer,
    TrainingArguments,
)

LENGTH = 12
ROWS = {
    BertForSequenceClassification: lambda number: {"labels": number % 2},
    BertForTokenClassification: lambda number: {"labels": [number % 2] * (LENGTH - number) + [-100] * number},
    BertForQuestionAnswering: lambda number: {"start_positions": number, "end_positions": number + 2},
}


def main() -> None:
    """Trains each kind of model for one update, both ways."""
    found = {"torch": torch.__version__, "transformers": transformers.__version__}
    for kind, labels in ROWS.items():
        found[kind.__name__] = {
            f"{size} x {steps}": first_update(kind, labels, size, steps) for size, steps in ((8, 1), (2, 4))
        }
    print(json.dumps(found))


def first_update(kind: type, labels, batch_size: int, steps: int) -> dict[str, float]:
    """Loss and gradient norm as the Trainer logs them."""
    transformers.set_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    model = kind(BertConfig(vocab_size=100, hidden_dropout_prob=0, attention_probs_dropout_prob=0, **sizes))
    draw = torch.Generator().manual_seed(0)
    rows = [
        {"input_ids": torch.randint(5, 90, (LENGTH,), generator=draw).tolist()} | labels(number) for number in range(8)
    ]
    with tempfile.TemporaryDirectory() as directory:
        settings = TrainingArguments(
            output_dir=directory,
            per_device_train_batch_size=batch_size,
            gradient_accumulation_steps=steps,
            max_steps=1,
            logging_steps=1,
            save_strategy="no",
            max_grad_norm=1e9,  # Otherwise the norm is that after clipping.
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
        )
        trainer = Trainer(model=model, args=settings, train_dataset=rows)
        trainer.train()
    logged = trainer.state.log_history[0]
    return {name: round(logged[name], 4) for name in ("loss", "grad_norm")}


if __name__ == "__main__":
    main()
