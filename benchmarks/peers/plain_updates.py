"""The peer of whole runs, update by update: a plain PyTorch loop on the very batches that tfbert plans.

    peer/bin/python benchmarks/peers/plain_updates.py start --model=DIR --train_file=train.tsv --output_dir=START
    peer/bin/python benchmarks/peers/plain_updates.py train --model=START --train_file=train.tsv --output_dir=RUN
    peer/bin/python benchmarks/peers/plain_updates.py draw --model=RUN --train_file=few.tsv --output_dir=DRAWS

`start` adds a random classifier to an encoder, without dropout by default, so that both sides begin with the same
weights and draw no noise. `train` makes the updates: torch.optim.AdamW, clipping, and the rate that tfbert's
documentation describes; with `--order=trainer`, on batches in the order of Hugging Face's Trainer. With tfbert it
shares the reading of files and the plan of batches (NumPy), nothing else.
`draw`, given `--dropout`, takes the gradient of one batch again and again. Both write `updates.json`: the loss of
each update, the norm of its gradient before clipping, and its rate.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys
from collections.abc import Sequence

import multi_label_classification
import numpy as np
import torch
from classification import encode, texts_of
from common import label_meanings
from fine_tuning import INPUTS, run_job
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForSequenceClassification

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent))

from tfbert.batches.plan import FILL, batches_of_a_pool, plan_epoch  # noqa: E402
from tfbert.data.files import read_file  # noqa: E402
from tfbert.data.labels import canonical  # noqa: E402

_WEIGHT_DECAY = 0.01
_WARM_UP = 0.1
_BETAS, _EPSILON = (0.9, 0.999), 1e-8


def main() -> None:
    """Does one of the three jobs."""
    run_job(__doc__, (start, train, draw), max_seq_length=128, add_arguments=add_arguments)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What only these jobs take."""
    parser.add_argument("--dropout", type=float, default=0.0, help="of every layer, for `start` and `draw`")
    parser.add_argument("--label_names", type=pathlib.Path, help="a file: several labels a text, in GoEmotions' form")
    parser.add_argument("--draws", type=int, default=400, help="for `draw`")
    parser.add_argument("--order", choices=list(ORDERS), default="tfbert", help="whose order of batches, for `train`")


def dropout(probability: float) -> dict[str, float]:
    """The fields of a configuration that set every dropout of a classifier."""
    return dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"), probability)


def start(args: argparse.Namespace, tokenizer) -> dict:
    """Saves the encoder with a new classifier, and the dropout that `train` is to have."""
    if args.label_names:
        names = args.label_names.read_text(encoding="utf-8").split()
        meanings = {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}
        meanings["problem_type"] = "multi_label_classification"
    else:
        meanings = label_meanings(read_file(args.train_file))
    model = AutoModelForSequenceClassification.from_pretrained(args.model, **meanings, **dropout(args.dropout))
    model.save_pretrained(args.output_dir)
    return meanings


def train(args: argparse.Namespace, tokenizer) -> dict:
    """Makes all updates, and saves the model and what each update measured."""
    model = AutoModelForSequenceClassification.from_pretrained(args.model)
    rows, labels = labelled_rows(args, tokenizer, model)
    lengths = np.array([len(row["input_ids"]) for row in rows])
    batches = [
        batch for epoch in range(int(args.num_train_epochs)) for batch in ORDERS[args.order](lengths, args, epoch)
    ]
    warm_up = math.ceil(_WARM_UP * len(batches))
    decayed, others = [], []
    for name, weight in model.named_parameters():
        (others if name.endswith("bias") or "LayerNorm" in name else decayed).append(weight)
    groups = [{"params": decayed, "weight_decay": _WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=_BETAS)
    updates = []
    for step, batch in enumerate(batches):
        rising, falling = (step + 1) / (warm_up + 1), (len(batches) - step) / (len(batches) - warm_up)
        rate = args.learning_rate * min(rising, falling)
        # Keras adds epsilon before the second moment's bias is corrected, PyTorch after it.
        epsilon = _EPSILON / math.sqrt(1 - _BETAS[1] ** (step + 1))
        for group in optimizer.param_groups:
            group |= {"lr": rate, "eps": epsilon}
        updates.append(gradient(model, [rows[i] for i in batch], labels[batch]) | {"learning_rate": rate})
        optimizer.step()
    model.save_pretrained(args.output_dir)
    return written(args, updates)


def draw(args: argparse.Namespace, tokenizer) -> dict:
    """Takes the gradient of all rows together as often as asked, each time with other dropout."""
    model = AutoModelForSequenceClassification.from_pretrained(args.model, **dropout(args.dropout))
    rows, labels = labelled_rows(args, tokenizer, model)
    return written(args, [gradient(model, rows, labels) for _ in range(args.draws)])


def labelled_rows(args: argparse.Namespace, tokenizer, model: torch.nn.Module) -> tuple[list[dict], torch.Tensor]:
    """All rows of the training file, and their labels: int64 `[rows]`, or float32 `[rows, labels]`."""
    if args.label_names:
        texts, sets = multi_label_classification.read(args.train_file, model.config.num_labels)
        rows = multi_label_classification.encode(tokenizer, texts, args.max_seq_length)
        return rows, torch.tensor(sets, dtype=torch.float32)
    table = read_file(args.train_file)
    rows = encode(tokenizer, *texts_of(table, np.arange(len(table))), args.max_seq_length)
    return rows, torch.tensor([model.config.label2id[canonical(label)] for label in table.labels])


def planned(lengths: np.ndarray, args: argparse.Namespace, epoch: int) -> list[np.ndarray]:
    """The rows of each batch of an epoch, as tfbert plans them by default."""
    plan = plan_epoch(
        lengths,
        global_batch_size=args.global_batch_size,
        seed=args.seed,
        epoch=epoch,
        group_by_length=True,
        allowed_widths=np.arange(1, max(lengths) + 1),
    )
    return [batch[batch != FILL] for batch in plan.rows]


def from_long_to_short(lengths: np.ndarray, args: argparse.Namespace, epoch: int) -> list[np.ndarray]:
    """The rows of each batch of an epoch in the order of transformers' LengthGroupedSampler: pool after pool, each from
    long to short, the batch with the longest of all rows first."""
    order = np.random.Generator(np.random.PCG64([args.seed, epoch])).permutation(len(lengths))
    pool = batches_of_a_pool(len(order), args.global_batch_size) * args.global_batch_size
    pools = [order[start : start + pool] for start in range(0, len(order), pool)]
    pools = [rows[np.argsort(-lengths[rows], kind="stable")] for rows in pools]
    longest = int(np.argmax([lengths[rows[0]] for rows in pools]))
    pools[0][0], pools[longest][0] = pools[longest][0], pools[0][0]
    order = np.concatenate(pools)
    return [order[start : start + args.global_batch_size] for start in range(0, len(order), args.global_batch_size)]


def shuffled(lengths: np.ndarray, args: argparse.Namespace, epoch: int) -> list[np.ndarray]:
    """tfbert's batches, those of all pools shuffled together; a short one stays the last."""
    batches = planned(lengths, args, epoch)
    whole = len(lengths) // args.global_batch_size
    order = np.random.Generator(np.random.PCG64([args.seed, epoch, 1])).permutation(whole)
    return [batches[i] for i in order] + batches[whole:]


ORDERS = {"tfbert": planned, "trainer": from_long_to_short, "shuffled": shuffled}


def gradient(model: torch.nn.Module, rows: Sequence[dict], labels: torch.Tensor) -> dict[str, float]:
    """Sets the clipped gradient of a batch; the loss, and the gradient's norm before clipping."""
    pad_id = model.config.pad_token_id or 0
    inputs = {
        name: pad_sequence([torch.tensor(row[name]) for row in rows], True, pad_id if name == "input_ids" else 0)
        for name in INPUTS
    }
    model.train()
    model.zero_grad()
    loss = model(**inputs, labels=labels).loss
    loss.backward()
    return {"loss": loss.item(), "grad_norm": torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()}


def written(args: argparse.Namespace, updates: list[dict[str, float]]) -> dict:
    """Writes `updates.json`."""
    pathlib.Path(args.output_dir, "updates.json").write_text(json.dumps(updates))
    return {"updates": len(updates)}


if __name__ == "__main__":
    main()
