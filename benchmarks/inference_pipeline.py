"""Examples per second: `--mode=predict` against transformers' PyTorch `pipeline` at its best batch size, in one run.

    python benchmarks/inference_pipeline.py --model=RUN --file=dev.tsv --torch_python=peer/bin/python

`RUN` is the output directory of a run on single texts, or of a tagger, whose `--file` holds sentences with tags; both
find entities in them as plain texts, whole words with their place, and sentences have to fit into a row: the pipeline
does not split them. The two take turns, `--rounds` times, each in its own process, on the same texts on the CPU. Both
times exclude loading the model. Ours includes tracing it, reading the file, tokenising and writing the predictions; the
pipeline's includes tokenising, after a warm-up. The pipeline is timed for each of `--batch_sizes`, in the file's order
and, to its advantage, sorted by length; its best figure counts. Ours is timed for `--own_batch_sizes`. Prints one JSON
line, with the machine and the CPU seconds of each process, those in the kernel apart (the pipeline's process runs all
its sizes). `--no-keep_freed_memory` leaves our side's glibc malloc at its defaults.

`--own_batch_sizes=0` leaves our batches to the command. With `--onnx=EXPORT`, of the same model, and `--onnx_python`,
a Python with onnxruntime, `examples/predict_onnx.py` takes turns with them, over the same texts: whole processes are
compared, from their start to their end. `--torch_python` is not needed then.
"""

import argparse
import json
import pathlib
import re
import sys
import tempfile
import time

from machine import done, machine

ROOT = pathlib.Path(__file__).parent.parent


def main() -> None:
    """Runs the rounds of both, and prints the ratio of the best figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--file", required=True)
    parser.add_argument("--torch_python", default="")
    parser.add_argument("--onnx", default="")
    parser.add_argument("--onnx_python", default="")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=10, help="how many times the file's texts are repeated")
    parser.add_argument("--batch_sizes", default="1,8,32,64,128")
    parser.add_argument("--own_batch_sizes", default="32,64,128")
    parser.add_argument("--bfloat16", action="store_true", help="both compute in bfloat16")
    parser.add_argument("--keep_freed_memory", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    from tfbert.data.files import read_file
    from tfbert.tasks.token_classification.tagged import read_sentences

    config = json.loads((pathlib.Path(args.model) / "config.json").read_text())
    is_tagger = config["architectures"] == ["BertForTokenClassification"]
    texts = [" ".join(words) for words in read_sentences(args.file).words] if is_tagger else read_file(args.file).text
    texts, length = texts * args.repeat, config["tfbert"]["max_seq_length"]
    rounds = []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        (scratch / "texts.json").write_text(json.dumps(texts))
        (scratch / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        (scratch / "in.txt").write_text("".join(text + "\n" for text in texts))
        for _ in range(args.rounds):
            own = [own_speed(args, scratch, size) for size in map(int, args.own_batch_sizes.split(","))]
            rounds.append({"tfbert": own})
            if args.onnx:
                output = scratch / "onnx.tsv"
                output.unlink(missing_ok=True)
                start = time.perf_counter()
                *_, used = done(
                    args.onnx_python, ROOT / "examples" / "predict_onnx.py", args.onnx, scratch / "in.txt", output
                )
                rounds[-1]["onnx"] = {"seconds": round(time.perf_counter() - start, 1)} | used
                tables = [path.read_text().splitlines() for path in (output, scratch / "out.tsv")]
                labels = [[line.split("\t")[1] for line in table] for table in tables]
                rounds[-1]["other_labels"] = sum(map(str.__ne__, *labels))
            if not args.torch_python:
                continue
            peer = ROOT / "benchmarks" / "peers" / "torch_predict.py"
            options = [f"--model={args.model}", f"--texts={scratch / 'texts.json'}", f"--max_seq_length={length}"]
            options += [f"--batch_sizes={args.batch_sizes}", "--dtype=bfloat16" if args.bfloat16 else "--dtype=float32"]
            out, _, used = done(args.torch_python, peer, "pipeline", *options)
            rounds[-1]["pipeline"] = json.loads(out.splitlines()[-1]) | used
    report = {"texts": len(texts), "rounds": rounds, "machine": machine()}
    if args.torch_python:
        best = max(run["examples_per_second"] for found in rounds for run in found["tfbert"])
        best_peer = max(found["pipeline"]["best"] for found in rounds)
        report |= {"tfbert_best": best, "pipeline_best": best_peer, "ratio": round(best / best_peer, 3)}
    if args.onnx:
        seconds = min(run["seconds"] for found in rounds for run in found["tfbert"])
        report["onnx_ratio"] = round(min(found["onnx"]["seconds"] for found in rounds) / seconds, 3)
    print(json.dumps(report))


def own_speed(args: argparse.Namespace, scratch: pathlib.Path, size: int) -> dict[str, float]:
    """Examples per second as the command reports them, and the CPU time and memory of its whole process."""
    output = scratch / "out.tsv"
    output.unlink(missing_ok=True)
    command = [sys.executable, ROOT / "run_finetune.py", "--mode=predict", "--device=cpu", f"--model={args.model}"]
    command += [f"--input_file={scratch / 'in.jsonl'}", f"--output_file={output}"]
    command += [f"--per_device_eval_batch_size={size}"] if size else []
    command += ["--mixed_precision"] if args.bfloat16 else []
    command += [] if args.keep_freed_memory else ["--nokeep_freed_memory"]
    start = time.perf_counter()
    _, lines, used = done(*command)
    seconds = round(time.perf_counter() - start, 1)
    (speed,) = re.findall(r"^predicted .*, ([\d,.]+) a second", lines, re.MULTILINE)
    return {"batch": size, "examples_per_second": float(speed.replace(",", "")), "seconds": seconds} | used


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
