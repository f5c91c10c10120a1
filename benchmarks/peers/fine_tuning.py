"""How the PyTorch peers train (Hugging Face's Trainer at its best, with tfbert's settings) and how they predict."""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
import transformers
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    AutoTokenizer,
    DataCollatorWithPadding,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_WARM_UP = 10
"""Updates that the steady speed leaves out, as tfbert's does; half of all updates if there are fewer than 20."""


class Clock(TrainerCallback):
    """Records when each update ended; prints a line after the first one."""

    def __init__(self):
        self.ends: list[float] = []

    def on_step_end(self, args, state, control, **kwargs):
        self.ends.append(time.perf_counter())
        if state.global_step == 1:
            print("first update done", flush=True)

    def steady(self, num_rows: int, batch_size: int) -> float:
        """Rows per second after the warm-up; NaN if the run is too short."""
        an_epoch = [batch_size] * (num_rows // batch_size) + [num_rows % batch_size] * (num_rows % batch_size > 0)
        rows = [an_epoch[step % len(an_epoch)] for step in range(len(self.ends))]
        first = min(_WARM_UP, len(rows) // 2)
        return sum(rows[first:]) / (self.ends[-1] - self.ends[first - 1]) if 0 < first < len(rows) else math.nan


def build_trainer(
    model: torch.nn.Module,
    rows: Sequence[dict],
    collate: Callable,
    *,
    seed: int,
    num_train_epochs: float = 1.0,
    batch_size: int = 32,
    learning_rate: float = 5e-5,
    bf16: bool = False,
    clock: Clock | None = None,
    **others,
) -> Trainer:
    """A Trainer with tfbert's settings: linear decay of the rate after 10% warm-up, weight decay without biases and
    LayerNorm (the Trainer's own rule), clipping at 1.0 (its default), rows grouped by length and padded to the longest.

    PyTorch has as many threads as the machine has cores, and chooses its attention itself (`sdpa`: faster than `eager`
    in prediction on a CPU, equally fast in training).
    """
    return Trainer(
        model=model,
        args=TrainingArguments(
            output_dir="/tmp/tfbert-peer",
            per_device_train_batch_size=batch_size,
            per_device_eval_batch_size=32,
            num_train_epochs=num_train_epochs,
            learning_rate=learning_rate,
            warmup_steps=0.1,
            weight_decay=0.01,
            optim="adamw_torch_fused",
            train_sampling_strategy="group_by_length",
            bf16=bf16,
            use_cpu=not torch.cuda.is_available(),
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            logging_steps=1000,
            seed=seed,
        ),
        train_dataset=rows,
        data_collator=collate,
        callbacks=[clock or Clock()],
        **others,
    )


def fine_tune(args: argparse.Namespace, model: torch.nn.Module, rows: Sequence[dict], collate: Callable) -> dict:
    """Trains on rows with a peer's arguments, saves the model, and returns the speed."""
    clock = Clock()
    trainer = build_trainer(
        model,
        rows,
        collate,
        seed=args.seed,
        num_train_epochs=args.num_train_epochs,
        batch_size=args.global_batch_size,
        learning_rate=args.learning_rate,
        bf16=args.bf16,
        clock=clock,
    )
    found = trainer.train().metrics
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    if hasattr(model, "merge_and_unload"):  # PEFT's.
        model = model.merge_and_unload()
    model.save_pretrained(args.output_dir)
    return {
        "trained_parameters": trained,
        "rows": len(rows),
        "global_step": trainer.state.global_step,
        "seconds": round(found["train_runtime"], 1),
        "rows_per_second": found["train_samples_per_second"],
        "rows_per_second_steady": round(clock.steady(len(rows), args.global_batch_size), 2),
    }


def token_logits(
    model: torch.nn.Module, rows: Sequence[dict], args: argparse.Namespace, tokenizer: PreTrainedTokenizerBase
) -> list[np.ndarray]:
    """Logits of the tokens of each row, float32 `[length, labels]`; for answers, those of starts and ends."""
    out: list[np.ndarray] = [np.zeros(0)] * len(rows)
    for batch, logits in _outputs(model, rows, args, tokenizer):
        for row, values in zip(batch, logits, strict=True):
            out[row] = values[: len(rows[row]["input_ids"])]
    return out


def text_logits(
    model: torch.nn.Module, rows: Sequence[dict], args: argparse.Namespace, tokenizer: PreTrainedTokenizerBase
) -> np.ndarray:
    """Logits of each row: float64 `[rows, labels]`."""
    out = np.zeros((len(rows), model.config.num_labels))
    for batch, logits in _outputs(model, rows, args, tokenizer):
        out[batch] = logits
    return out


@torch.inference_mode()
def _outputs(
    model: torch.nn.Module, rows: Sequence[dict], args: argparse.Namespace, tokenizer: PreTrainedTokenizerBase
) -> Iterator[tuple[Sequence[int], np.ndarray]]:
    """Indices of rows, and their logits: `[rows, labels]` or `[rows, width, labels]`; by Trainer.predict or a loop."""
    rows = [{name: row[name] for name in INPUTS if name in row} for row in rows]
    if args.trainer:
        settings = TrainingArguments(
            output_dir="/tmp/tfbert-peer",
            per_device_eval_batch_size=args.batch_size,
            use_cpu=not torch.cuda.is_available(),
            report_to=[],
            disable_tqdm=True,
        )
        found = Trainer(model=model, args=settings, data_collator=DataCollatorWithPadding(tokenizer)).predict(rows)
        values = found.predictions
        yield range(len(rows)), np.stack(values, -1) if isinstance(values, tuple) else values
        return
    model.eval()
    for batch, inputs in padded_batches(rows, args.batch_size, tokenizer.pad_token_id):
        found = model(**inputs)
        logits = found.logits if "logits" in found else torch.stack([found.start_logits, found.end_logits], -1)
        yield batch, logits.float().numpy()


def padded_batches(
    rows: Sequence[dict], batch_size: int, pad_id: int
) -> Iterator[tuple[list[int], dict[str, torch.Tensor]]]:
    """Rows sorted by length and padded to the longest of their batch. (`pipeline` and Trainer.predict take them in the
    given order, and are slower.) With each batch, its rows' indices."""
    order = sorted(range(len(rows)), key=lambda row: -len(rows[row]["input_ids"]))
    fill = {"input_ids": pad_id}
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        inputs = {name: [torch.tensor(rows[row][name]) for row in batch] for name in rows[0]}
        yield batch, {name: pad_sequence(each, True, fill.get(name, 0)) for name, each in inputs.items()}


def run_job(
    description: str,
    jobs: Sequence[Callable[[argparse.Namespace, PreTrainedTokenizerBase], dict]],
    *,
    max_seq_length: int,
    add_arguments: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
) -> None:
    """Reads the arguments of a task's peer, does the job, and prints the results as a JSON line.

    Args:
        description: The script's docstring.
        jobs: Functions, chosen by their names; each receives the arguments and the model's tokenizer.
        max_seq_length: The task's default.
        add_arguments: Adds the task's own arguments.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    by_name = {job.__name__: job for job in jobs}
    parser.add_argument("job", choices=list(by_name))
    parser.add_argument("--model", required=True)
    for name in ("output_dir", "train_file", "validation_file", "test_file", "input_file"):
        parser.add_argument(f"--{name}", default="")
    for name in ("max_train_examples", "max_eval_examples"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--num_train_epochs", type=float, default=3.0)
    parser.add_argument("--global_batch_size", type=int, default=32)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--batch_size", type=int, default=32, help="for `predict`")
    parser.add_argument(
        "--trainer", action="store_true", help="`predict` by Trainer.predict, as transformers' own scripts do"
    )
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--bf16", action="store_true", help="for `train`")
    parser.add_argument("--max_seq_length", type=int, default=max_seq_length)
    add_arguments(parser)
    args = parser.parse_args()
    transformers.set_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    if args.output_dir:
        tokenizer.save_pretrained(args.output_dir)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    print(json.dumps(by_name[args.job](args, tokenizer) | versions | {"threads": torch.get_num_threads()}))


def timed_predictions(args: argparse.Namespace, predict: Callable[[list[dict]], object]) -> dict:
    """Examples per second of `predict` on the objects in `--input_file`, JSON lines, after four batches of warm-up."""
    lines = pathlib.Path(args.input_file).read_text(encoding="utf-8").splitlines()
    examples = [json.loads(line) for line in lines]
    predict(examples[: 4 * args.batch_size])
    start = time.perf_counter()
    predict(examples)
    return {"examples_per_second": round(len(examples) / (time.perf_counter() - start), 1)}
