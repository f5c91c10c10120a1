"""The peer of a training step: PyTorch's BERT at its best settings, on random token ids, in its own environment.

    peer/bin/python benchmarks/peers/torch_step.py --hidden=768 --layers=12 --heads=12 --seq_length=128 --dtype=float16

Fused AdamW, clipping, autocast with loss scaling for float16, fused attention, TF32 as in TensorFlow, dropout on; eager
and with `torch.compile`. Batches are already on the device. Prints a JSON line with examples/s after each of the two:
the last line holds both.
"""

import argparse
import json
import statistics
import time

import torch
import transformers
from transformers import BertConfig, BertForSequenceClassification


def main() -> None:
    """Measures both ways; the second one may fail."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("hidden", 768), ("layers", 12), ("heads", 12), ("vocab", 30522), ("seq_length", 128)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--dtype", choices=["float32", "float16", "bfloat16"], default="float32")
    parser.add_argument("--warmup_steps", type=int, default=10)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    found = {"torch": torch.__version__, "transformers": transformers.__version__, "device": args.device}
    found |= {"dtype": args.dtype, "examples_per_second": {}}
    for compiles in (False, True):
        name = "compiled" if compiles else "eager"
        try:
            found["examples_per_second"][name] = round(speed(args, compiles), 1)
        except Exception as error:  # Out of memory, or no compiler: the other figure still counts.
            found[f"{name} failed"] = f"{type(error).__name__}: {error}".splitlines()[0]
        print(json.dumps(found), flush=True)


def speed(args: argparse.Namespace, compiles: bool) -> float:
    """The examples of an update, divided by the median of its seconds."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=args.hidden,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        intermediate_size=4 * args.hidden,
        vocab_size=args.vocab,
        num_labels=2,
    )
    model = BertForSequenceClassification(config).to(args.device).train()
    forward = torch.compile(model) if compiles else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)
    scaler = torch.amp.GradScaler(args.device, enabled=args.dtype == "float16")
    ids = torch.randint(0, args.vocab, (args.batch_size, args.seq_length), device=args.device)
    labels = torch.randint(0, 2, (args.batch_size,), device=args.device)
    seconds = []
    for _ in range(args.warmup_steps + args.steps):
        start = time.perf_counter()
        dtype = getattr(torch, args.dtype)
        with torch.autocast(args.device, dtype=dtype, enabled=args.dtype != "float32"):
            loss = forward(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels).loss
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if args.device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return args.batch_size / statistics.median(seconds[args.warmup_steps :])


if __name__ == "__main__":
    main()
