"""The peer of prediction: transformers and PyTorch on a model directory that tfbert wrote, in their own environment.

    python -m venv peer && peer/bin/pip install torch transformers
    peer/bin/python benchmarks/peers/torch_predict.py logits --model=RUN --texts=texts.json --output=logits.json
    peer/bin/python benchmarks/peers/torch_predict.py pipeline --model=RUN --texts=texts.json --batch_sizes=1,8,32,128

`texts.json` is a list of texts. Prints or writes JSON; TensorFlow must not be importable here.
"""

import argparse
import importlib.util
import json
import pathlib
import time

import torch
import transformers
from transformers import AutoConfig, AutoTokenizer, BertForSequenceClassification, pipeline


def main() -> None:
    """Does one of the two jobs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=["logits", "pipeline"])
    parser.add_argument("--model", required=True)
    parser.add_argument("--texts", required=True)
    parser.add_argument("--output", default="")
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--batch_sizes", default="1,8,32,128")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    assert importlib.util.find_spec("tensorflow") is None, "the peer's environment must not hold TensorFlow"
    texts = json.loads(pathlib.Path(args.texts).read_text())
    found = {"torch": torch.__version__, "transformers": transformers.__version__, "threads": torch.get_num_threads()}
    found |= logits(args, texts) if args.job == "logits" else speeds(args, texts)
    text = json.dumps(found)
    if args.output:
        pathlib.Path(args.output).write_text(text)
    else:
        print(text)


def logits(args: argparse.Namespace, texts: list[str]) -> dict:
    """The logits of each text alone, without padding; and the labels that the pipeline returns."""
    model, report = BertForSequenceClassification.from_pretrained(args.model, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"], report
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    rows = []
    with torch.inference_mode():
        for text in texts:
            encoded = tokenizer(text, truncation=True, max_length=args.max_seq_length, return_tensors="pt")
            rows.append(model.eval()(**encoded).logits[0].tolist())
    classify = pipeline("text-classification", args.model, device=args.device)
    labels = [found["label"] for found in classify(texts, truncation=True, max_length=args.max_seq_length)]
    return {"logits": rows, "labels": labels}


def speeds(args: argparse.Namespace, texts: list[str]) -> dict:
    """Examples per second of the pipeline for each batch size, in the given order and sorted by length."""
    dtype = getattr(torch, args.dtype)
    if AutoConfig.from_pretrained(args.model).architectures == ["BertForTokenClassification"]:
        classify = pipeline("token-classification", args.model, dtype=dtype, device=args.device)
        options = {"aggregation_strategy": "first"}
    else:
        classify = pipeline("text-classification", args.model, dtype=dtype, device=args.device)
        options = {"truncation": True, "max_length": args.max_seq_length}
    out = {}
    for order, rows in (("given", texts), ("by length", sorted(texts, key=len, reverse=True))):
        for size in map(int, args.batch_sizes.split(",")):
            classify(rows[: 4 * size], batch_size=size, **options)
            start = time.perf_counter()
            classify(rows, batch_size=size, **options)
            out[f"{order}, batch {size}"] = round(len(rows) / (time.perf_counter() - start), 1)
    return {"dtype": args.dtype, "examples_per_second": out, "best": max(out.values())}


if __name__ == "__main__":
    main()
