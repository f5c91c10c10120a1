"""The peer of gpu.py: PyTorch's BERT at its best settings, on random token ids, in its own environment.

    peer/bin/python benchmarks/peers/torch_passes.py --pass=training --ways=eager,compiled --dtype=float16
    peer/bin/python benchmarks/peers/torch_passes.py --pass=inference --ways=eager,compiled,cast --dtype=float16

Training: fused AdamW, clipping, loss scaling for float16, dropout on. Inference: logits, under `inference_mode`. Both:
autocast, fused attention with a mask, TF32 as in TensorFlow, full rows that are already on the device.

Prints a JSON line for each way: `eager`; `compiled`, with `torch.compile`; `cast`, compiled, and with weights converted
to the precision once instead of autocast. A way that fails says why; memory that does not suffice is "out of memory".
"""

import argparse
import gc
import json
import re
import statistics
import time
from collections.abc import Callable

import torch
import transformers
from transformers import BertConfig, BertForSequenceClassification

BLOCKS = 5
_OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory|STATUS_ALLOC_FAILED", re.I)


def main() -> None:
    """Measures each way; the others count even if one fails."""
    args = arguments()
    torch.backends.cuda.matmul.allow_tf32 = True
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    for way in args.ways.split(","):
        try:
            found = {"status": "done"} | measured(args, way)
        except Exception as error:  # Out of memory, or no compiler.
            found = {"status": "failed", "reason": reason(error)}
        print(json.dumps({"way": way} | found | versions), flush=True)
        gc.collect()
        if args.device == "cuda":
            torch.cuda.empty_cache()


def arguments() -> argparse.Namespace:
    """The command's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("hidden", 768), ("layers", 12), ("heads", 12), ("vocab", 30522), ("seq_length", 128)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--pass", dest="measured", choices=["training", "inference"], default="training")
    parser.add_argument("--ways", default="eager,compiled", help="of eager, compiled and (for inference) cast")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--dtype", choices=["float32", "float16", "bfloat16"], default="float32")
    parser.add_argument("--warmup_steps", type=int, default=10)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def reason(error: Exception) -> str:
    """Why a way failed, in a line."""
    text = f"{type(error).__name__}: {error}"
    return "out of memory" if _OUT_OF_MEMORY.search(text) else text.splitlines()[0]


def measured(args: argparse.Namespace, way: str) -> dict[str, float | None]:
    """Examples a second after the warm-up, and the peak memory of a GPU in bytes (None on a CPU)."""
    torch.manual_seed(0)
    if args.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    model = build_model(args)
    if way == "cast":
        model = model.to(getattr(torch, args.dtype))
    forward = model if way == "eager" else torch.compile(model)
    is_mixed = args.dtype != "float32" and way != "cast"

    def autocast() -> torch.autocast:
        return torch.autocast(args.device, dtype=getattr(torch, args.dtype), enabled=is_mixed)

    ids = torch.randint(0, args.vocab, (args.batch_size, args.seq_length), device=args.device)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    step = update_of(args, model, forward, inputs, autocast) if args.measured == "training" else None
    seconds = step_seconds(args, step or prediction_of(model, forward, inputs, autocast))
    peak = torch.cuda.max_memory_allocated() if args.device == "cuda" else None
    return {"examples_per_second": round(args.batch_size / seconds, 1), "peak_memory_bytes": peak}


def build_model(args: argparse.Namespace) -> torch.nn.Module:
    """BERT with two labels and random weights."""
    config = BertConfig(
        hidden_size=args.hidden,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        intermediate_size=4 * args.hidden,
        vocab_size=args.vocab,
        num_labels=2,
        attn_implementation="sdpa",
    )
    return BertForSequenceClassification(config).to(args.device)


def update_of(
    args: argparse.Namespace, model: torch.nn.Module, forward: Callable, inputs: dict, autocast: Callable
) -> Callable[[], None]:
    """The function that makes an update."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)
    scaler = torch.amp.GradScaler(args.device, enabled=args.dtype == "float16")
    labels = torch.randint(0, 2, (args.batch_size,), device=args.device)

    def update() -> None:
        with autocast():
            loss = forward(**inputs, labels=labels).loss
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return update


def prediction_of(model: torch.nn.Module, forward: Callable, inputs: dict, autocast: Callable) -> Callable[[], None]:
    """The function that computes the logits of a batch."""
    model.eval()

    def predict() -> None:
        with torch.inference_mode(), autocast():
            forward(**inputs)

    return predict


def step_seconds(args: argparse.Namespace, step: Callable[[], None]) -> float:
    """The median of a few blocks of steps, after the warm-up. A GPU is waited for only at the end of a block."""
    wait = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    for _ in range(args.warmup_steps):
        step()
    wait()
    number, seconds = max(1, args.steps // BLOCKS), []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(number):
            step()
        wait()
        seconds.append((time.perf_counter() - start) / number)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
