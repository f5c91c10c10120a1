"""The peer of `step_pieces.py`: the pieces of an encoder layer in PyTorch, forward and backward.

Reads names of pieces; for each, runs its copies once and prints the milliseconds of one. In bfloat16 as Hugging Face's
Trainer: by autocast, with weights and the outputs of normalisations in float32.
"""

import argparse
import sys
import time

import torch
from torch.nn import functional
from transformers import BertConfig, BertModel


def main() -> None:
    """Answers requests until its input ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    for name in ("rows", "width", "copies"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--mixed_precision", action="store_true")
    args = parser.parse_args()
    whole = BertModel(BertConfig.from_pretrained(args.model), add_pooling_layer=True)
    config = BertConfig.from_pretrained(args.model, num_hidden_layers=args.copies)
    layers = BertModel(config).train().encoder.layer
    tokens, heads = args.rows * args.width, config.num_attention_heads
    hidden, middle = (tokens, config.hidden_size), (tokens, config.intermediate_size)
    by_head = (args.rows, heads, args.width, config.hidden_size // heads)
    mask = torch.zeros(args.rows, 1, 1, args.width)
    share = config.attention_probs_dropout_prob

    def attention(layer, query, key, value):
        own = functional.scaled_dot_product_attention(query, key, value, mask.to(query.dtype), share)
        return own.transpose(1, 2).reshape(hidden)

    def a_layer(layer, x):
        out = layer(x, attention_mask=mask)
        return out[0] if isinstance(out, tuple) else out

    full, half = torch.float32, torch.bfloat16 if args.mixed_precision else torch.float32
    pieces = {
        "nothing": (lambda layer, x, y: x @ y, [((8, 8), half)] * 2),
        "projection": (lambda layer, x: layer.attention.self.query(x), [(hidden, full)]),
        "middle": (lambda layer, x: layer.intermediate.dense(x), [(hidden, full)]),
        "output": (lambda layer, x: layer.output.dense(x), [(middle, half)]),
        "attention": (attention, [(by_head, half)] * 3),
        "gelu": (lambda layer, x: functional.gelu(x), [(middle, half)]),
        "dropout": (lambda layer, x: layer.output.dropout(x), [(hidden, half)]),
        "norm": (lambda layer, x, y: layer.output.LayerNorm(x + y), [(hidden, half), (hidden, full)]),
        "layer": (a_layer, [((args.rows, args.width, config.hidden_size), full)]),
    }
    inputs = {
        name: [[torch.randn(shape).to(dtype).requires_grad_() for shape, dtype in parts] for _ in layers]
        for name, (_, parts) in pieces.items()
    }
    optimizer = torch.optim.AdamW(whole.parameters(), lr=5e-5, weight_decay=0.01, fused=True)
    for parameter in whole.parameters():
        parameter.grad = torch.randn_like(parameter)
    for line in sys.stdin:
        name = line.strip()
        start = time.perf_counter()
        if name == "update":
            torch.nn.utils.clip_grad_norm_(whole.parameters(), 1.0)
            optimizer.step()
            print(1000 * (time.perf_counter() - start), flush=True)
            continue
        compute = pieces[name][0]
        for layer, own in zip(layers, inputs[name], strict=True):
            with torch.autocast("cpu", torch.bfloat16, enabled=args.mixed_precision):
                result = compute(layer, *own)
            if name != "nothing":
                torch.autograd.grad(result, [*own, *layer.parameters()], result.detach(), allow_unused=True)
        print(1000 * (time.perf_counter() - start) / args.copies, flush=True)


if __name__ == "__main__":
    main()
