"""The peer of `pretraining_speed.py`: updates of Hugging Face's PyTorch BERT on given batches, in its own environment.

    peer/bin/python benchmarks/peers/pretraining.py --kind=pretraining --config=config.json --batches=batches.npz

Random weights, fused AdamW, clipping, dropout on, attention as transformers chooses it, and the fastest of several
numbers of threads. `pretraining` and `masked_lm` are transformers' models as they are: they compute the scores of every
word at every position. `gathered` is the first one, but only masked positions go to its head: custom code that nobody
ships, to show how much difference that makes.

Prints `ready` and its choices as JSON. Then reads lines `FIRST LAST`, makes an update on each batch from FIRST to
LAST - 1, and prints their seconds, and the CPU seconds in the program and in the kernel.
"""

import argparse
import json
import os
import pathlib
import resource
import sys
import time

import numpy as np
import torch
import transformers
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining

IGNORED = -100


def main() -> None:
    """Answers requests until its input ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", required=True, choices=["pretraining", "masked_lm", "gathered"])
    parser.add_argument("--config", required=True, help="the model's config.json")
    parser.add_argument("--batches", required=True, help="file of batches that pretraining_speed.py writes")
    parser.add_argument("--threads", default="", help="numbers of threads to try; default: half the cores, and all")
    parser.add_argument("--bfloat16", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    config = BertConfig(**json.loads(pathlib.Path(args.config).read_text()))
    model = (BertForMaskedLM if args.kind == "masked_lm" else BertForPreTraining)(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    batches = read_batches(args.batches)

    def updates(first: int, last: int) -> float:
        start = time.perf_counter()
        for batch in batches[first:last]:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bfloat16):
                loss = LOSSES[args.kind](model, *batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        return time.perf_counter() - start

    updates(0, 2)
    counts = sorted(set(map(int, args.threads.split(","))) if args.threads else {max(1, cores() // 2), cores()})
    tried = dict.fromkeys(counts, float("inf"))
    for threads in counts * 3:  # The best of three, because other work may interfere.
        torch.set_num_threads(threads)
        updates(0, 1)
        tried[threads] = min(tried[threads], updates(0, 2))
    torch.set_num_threads(min(tried, key=tried.get))
    chosen = {"threads": torch.get_num_threads(), "torch": torch.__version__, "transformers": transformers.__version__}
    print("ready", json.dumps(chosen | {"attention": model.config._attn_implementation}), flush=True)
    for line in sys.stdin:
        before = resource.getrusage(resource.RUSAGE_SELF)
        seconds = updates(*map(int, line.split()))
        after = resource.getrusage(resource.RUSAGE_SELF)
        print(seconds, after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime, flush=True)


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_batches(path: str) -> list[tuple[dict, torch.Tensor, torch.Tensor]]:
    """For each batch: inputs, labels of words at every position, and labels of pairs."""
    out = []
    with np.load(path) as stored:
        for number in range(int(stored["count"])):
            ids, mask, segments, positions, labels, weights, pairs = (
                torch.from_numpy(stored[f"{name}_{number}"]).long()
                for name in ("ids", "mask", "segments", "positions", "labels", "weights", "next_sentence")
            )
            words = torch.full_like(ids, IGNORED)
            row, rank = torch.nonzero(weights, as_tuple=True)
            words[row, positions[row, rank]] = labels[row, rank]
            out.append(({"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}, words, pairs))
    return out


def _pretraining(model, inputs, words, pairs):
    return model(**inputs, labels=words, next_sentence_label=pairs).loss


def _masked_lm(model, inputs, words, pairs):
    return model(**inputs, labels=words).loss


def _gathered(model, inputs, words, pairs):
    found = model.bert(**inputs)
    is_masked = words != IGNORED
    scores, following = model.cls(found.last_hidden_state[is_masked], found.pooler_output)
    loss = torch.nn.functional.cross_entropy
    return loss(scores, words[is_masked]) + loss(following, pairs)


LOSSES = {"pretraining": _pretraining, "masked_lm": _masked_lm, "gathered": _gathered}


if __name__ == "__main__":
    main()
