"""The peer of `steps_in_turns.py`: a bare PyTorch training step on batches of given widths, in float32 or bfloat16.

Reads lines of widths, such as `13,9,27`. For each width, makes an update on `--batch_size` random texts. Prints the
seconds for the line, and the CPU seconds in the program and in the kernel.
"""

import argparse
import resource
import sys
import time

import torch
from transformers import AutoModelForSequenceClassification


def main() -> None:
    """Answers requests until its input ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--mixed_precision", action="store_true")
    args = parser.parse_args()
    model = AutoModelForSequenceClassification.from_pretrained(args.model, num_labels=2).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.01, fused=True)
    print("ready", flush=True)
    for line in sys.stdin:
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        for width in map(int, line.split(",")):
            ids = torch.randint(1, model.config.vocab_size, (args.batch_size, width))
            labels = torch.randint(0, 2, (args.batch_size,))
            with torch.autocast("cpu", torch.bfloat16, enabled=args.mixed_precision):
                loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
        print(seconds, after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime, flush=True)


if __name__ == "__main__":
    main()
