"""`--mode=prepare` against the algorithm in plain Python: sentences/s and core, statistics, memory, same bytes.

    python benchmarks/prepare_speed.py --corpus=train.jsonl.gz --vocab_file=vocab.txt

The corpus is cut into sentences once. From that file both sides make records: pairs with next sentence, one pass.

Speed is sentences over CPU seconds, of all threads and of the kernel. The peer's (`peers/plain_records.py`) excludes
its start. Ours is measured twice: in this process, where a shard of the whole corpus is made three times after a small
one; and as the whole command, its start included. The statistics are counted from both sides' records.

Memory is that of the command, on the corpus and on `--times` copies of it (each with its own first words, so that
documents differ), with shards of the same size. It is the resident memory of the largest process, with everything that
it maps, and the anonymous memory of all processes together, sampled five times per second (Linux). Writes a file in
benchmarks/results/.
"""

import argparse
import hashlib
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from machine import done, wait  # noqa: E402
from results_page import beginning, default_output, table  # noqa: E402

REPEATS = 3
_SECONDS_BETWEEN_LOOKS = 0.2


def main() -> None:
    """Makes all measurements, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, help="a file that --input_files takes")
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--max_documents", type=int, default=0, help="only the first documents of the corpus; 0: all")
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--num_shards", type=int, default=4, help="shards for one copy of the corpus")
    parser.add_argument("--times", type=int, default=10, help="copies of the corpus for the second peak of memory")
    parser.add_argument("--work_dir", default="", help="for intermediate files; default: a temporary directory")
    parser.add_argument("--output", default="", help="file for the results; default: a new file in benchmarks/results/")
    args = parser.parse_args()
    output = pathlib.Path(args.output or default_output("prepare"))
    if output.exists():
        sys.exit(f"{output} exists: pass another --output, or move it away.")
    with tempfile.TemporaryDirectory(dir=args.work_dir or None) as scratch:
        scratch = pathlib.Path(scratch)
        corpus, many = scratch / "once.txt", scratch / "many.txt"
        cut = write_corpora(args, corpus, many)
        say(f"{cut['documents']:,} documents, {cut['sentences']:,} sentences")
        commands = {
            f"command, {processes} process{'es' * (processes > 1)}": command(args, corpus, scratch, processes)
            for processes in (1, 2)
        }
        digests = {name: run.pop("digest") for name, run in commands.items()}
        assert len(set(digests.values())) == 1, f"other bytes with other processes: {digests}"
        say(f"commands: {commands}")
        peer = plain(args, corpus, scratch / "plain.tfrecord")
        say(f"plain: {peer}")
        memory = {
            name: command(args, path, scratch, 2, times, keep=False)
            for name, path, times in (("once", corpus, 1), (f"{args.times} times", many, args.times))
        }
        say(f"memory: {memory}")
        own = in_process(args, corpus, scratch)
        say(f"in process: {own}")
        found = {"plain": statistics_of(scratch / "plain.tfrecord"), "tfbert": statistics_of(scratch / "records-1-1")}
    output.write_text(page(args, cut, commands, peer, memory, own, found), encoding="utf-8")
    say(f"see {output}")


def say(line: str) -> None:
    """Reports the progress."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def write_corpora(args: argparse.Namespace, once: pathlib.Path, many: pathlib.Path) -> dict[str, float]:
    """Writes the sentences, once and several times; counts them, and measures the time to read and cut them."""
    from tfbert.config.data import DataConfig
    from tfbert.config.tasks import PRETRAINING, CorpusConfig
    from tfbert.corpus.sources import open_source

    source = open_source(CorpusConfig(input_files=(args.corpus,)), DataConfig(task=PRETRAINING))
    start = time.process_time()
    documents = itertools.chain.from_iterable(map(source.read, source.parts()))
    documents = list(itertools.islice(documents, args.max_documents or None))
    cut = {"documents": len(documents), "sentences": sum(map(len, documents)), "seconds": time.process_time() - start}
    with once.open("w", encoding="utf-8") as file:
        file.writelines("\n".join(document) + "\n\n" for document in documents)
    with many.open("w", encoding="utf-8") as file:
        for copy in range(args.times):
            file.writelines(f"Copy number {copy}: " + "\n".join(document) + "\n\n" for document in documents)
    return cut | {"bytes": once.stat().st_size}


def command(
    args: argparse.Namespace,
    corpus: pathlib.Path,
    scratch: pathlib.Path,
    processes: int,
    times: int = 1,
    keep: bool = True,
) -> dict:
    """The whole command on a corpus: seconds, CPU seconds, MB, sentences, and a digest of its shards."""
    records = scratch / f"records-{processes}-{times}{'' if keep else '-memory'}"
    words = [sys.executable, ROOT / "run_pretraining.py", "--mode=prepare", "--corpus_format=sentences"]
    words += [f"--input_files={corpus}", f"--vocab_file={args.vocab_file}", f"--max_seq_length={args.max_seq_length}"]
    words += [f"--num_shards={args.num_shards * times}", f"--num_processes={processes}", f"--output_dir={records}"]
    start = time.perf_counter()
    with (scratch / "command.log").open("w") as log:
        process = subprocess.Popen([str(word) for word in words], stdout=log, stderr=subprocess.STDOUT)
        together = 0 if keep else peak_together(process.pid)  # Sampling takes kernel time.
        used = wait(process)
    if process.returncode:
        sys.exit((scratch / "command.log").read_text())
    used |= {"seconds": round(time.perf_counter() - start, 1), "together_mb": together}
    totals = json.loads((records / "manifest.json").read_text())["totals"]
    used |= {name: totals[name] for name in ("sentences", "records", "bytes")}
    if keep:
        digest = hashlib.sha256()
        for path in sorted(records.glob("*.tfrecord")):
            digest.update(path.read_bytes())
        return used | {"digest": digest.hexdigest()}
    for path in records.glob("*.tfrecord"):
        path.unlink()
    return used


def peak_together(pid: int) -> int:
    """Samples a process and its children until it has ended, without reaping it; returns the most MB of anonymous
    memory that they had together."""
    most = 0
    while (stat := _text(f"/proc/{pid}/stat")) and stat.rpartition(")")[2].split()[0] != "Z":
        pids, total = [pid], 0
        for each in pids:  # The list grows during the loop.
            pids += [int(child) for child in _text(f"/proc/{each}/task/{each}/children").split()]
            lines = _text(f"/proc/{each}/smaps_rollup").splitlines()
            total += next((int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:")), 0)
        most = max(most, total)
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    return round(most / 1024)


def _text(path: str) -> str:
    try:
        return pathlib.Path(path).read_text()
    except OSError:  # It has ended, or this is not Linux.
        return ""


def plain(args: argparse.Namespace, corpus: pathlib.Path, output: pathlib.Path) -> dict:
    """The peer's own report, with its process's peak memory."""
    words = [sys.executable, ROOT / "benchmarks" / "peers" / "plain_records.py", f"--input_file={corpus}"]
    words += [f"--vocab_file={args.vocab_file}", f"--output_file={output}", f"--max_seq_length={args.max_seq_length}"]
    words += [f"--max_predictions_per_seq={most_predictions(args)}"]
    out, _, used = done(*words)
    return json.loads(out.splitlines()[-1]) | {"peak_mb": used["peak_mb"]}


def most_predictions(args: argparse.Namespace) -> int:
    """The predictions of a record of full length: our default."""
    from tfbert.corpus.masking import most_predictions as of_length

    return of_length(0, masked_lm_prob=0.15, max_seq_length=args.max_seq_length)


def in_process(args: argparse.Namespace, corpus: pathlib.Path, scratch: pathlib.Path) -> list[dict]:
    """Makes a shard of all documents in this process, reading them included, after one as warm-up."""
    from tfbert.config.data import DataConfig
    from tfbert.config.modes import ModelConfig, OutputConfig
    from tfbert.config.run import Config
    from tfbert.config.tasks import PRETRAINING, CorpusConfig
    from tfbert.corpus.manifest import ENTRIES, Recipe
    from tfbert.corpus.shards import Job, build_shard, shares_of
    from tfbert.corpus.sources import open_source
    from tfbert.measure import cpu_seconds
    from tfbert.tokens.tokenizer import BertTokenizer
    from tfbert.tokens.vocabulary import read_vocab_file

    options = CorpusConfig(input_files=(str(corpus),), corpus_format="sentences")
    data = DataConfig(task=PRETRAINING, max_seq_length=args.max_seq_length)
    source = open_source(options, data)
    tokenizer = BertTokenizer(read_vocab_file(pathlib.Path(args.vocab_file)))
    directory = scratch / "one"
    model, output = ModelConfig(vocab_file=args.vocab_file), OutputConfig(output_dir=str(directory))
    config = Config(mode="prepare", data=data, model=model, corpus=options, output=output)
    recipe = Recipe.of_config(config, tokenizer, num_shards=1)
    (directory / ENTRIES).mkdir(parents=True)
    shares = shares_of(source, 1)
    job = Job(source=source, shares=shares, recipe=recipe, digest="", directory=directory, work=directory)
    build_shard(job, 0)
    runs = []
    for _ in range(REPEATS):
        start, before = time.perf_counter(), cpu_seconds()
        entry = build_shard(job, 0)
        cpu, seconds = cpu_seconds() - before, time.perf_counter() - start
        used = {"seconds": seconds, "user_seconds": float(cpu[0]), "kernel_seconds": float(cpu[1])}
        runs.append({name: entry[name] for name in ("sentences", "records")} | used)
    return runs


def statistics_of(path: pathlib.Path) -> dict[str, float]:
    """Statistics of what the algorithm decides, counted from records."""
    import numpy as np

    from tfbert.corpus.records import open_records

    records = open_records([str(path)])
    width = records.schema.max_seq_length
    parts = [records.read(rows) for rows in np.array_split(np.arange(len(records)), -(-len(records) // 8192))]
    lengths = np.concatenate([part.lengths for part in parts])
    predictions = np.concatenate([part.masked.weights.sum(axis=1) for part in parts])
    first = np.concatenate([part.second_start - 2 for part in parts])
    given, was = [], []
    for part in parts:
        row, rank = np.nonzero(part.masked.weights > 0)
        given.append(part.masked.ids[row, part.masked.positions[row, rank]])
        was.append(part.masked.labels[row, rank])
    given, was = np.concatenate(given), np.concatenate(was)
    mask_id = np.bincount(given[given != was]).argmax()  # By far the most frequent one is [MASK].
    return {
        "records": len(records),
        "tokens of a record, mean": lengths.mean(),
        "their standard deviation": lengths.std(),
        "records of full length, %": 100 * (lengths == width).mean(),
        "tokens of the first stretch, mean": first.mean(),
        "random second stretches, %": 100 * np.concatenate([part.next_sentence for part in parts]).mean(),
        "predictions of a record, mean": predictions.mean(),
        "predicted tokens, %": 100 * predictions.sum() / lengths.sum(),
        "of these [MASK], %": 100 * (given == mask_id).mean(),
        "of these kept, %": 100 * ((given == was) & (given != mask_id)).mean(),
        "of these another word, %": 100 * ((given != was) & (given != mask_id)).mean(),
    }


def page(args, cut: dict, commands: dict, peer: dict, memory: dict, own: list[dict], found: dict) -> str:
    """The results."""

    def speed(run: dict) -> float:
        return run["sentences"] / (run["user_seconds"] + run["kernel_seconds"])

    runs = {"plain Python": peer} | {f"one shard in process, {n}": run for n, run in enumerate(own, 1)} | commands
    speeds = [
        [
            name,
            f"{run['sentences']:,}",
            f"{run['seconds']:.1f}",
            f"{run['user_seconds']:.1f}, {run['kernel_seconds']:.1f}",
            f"{speed(run):,.0f}",
            f"{speed(run) / speed(peer):.1f}",
        ]
        for name, run in runs.items()
    ]
    peaks = [
        [name, f"{run['sentences']:,}", f"{run['peak_mb']:,}", f"{run['together_mb']:,}", f"{run['seconds']:.0f}"]
        for name, run in memory.items()
    ]
    few, many = memory.values()
    growth = [f"{100 * (many[name] / max(few[name], 1) - 1):+.1f}%" for name in ("peak_mb", "together_mb")]
    counted = [[name, *(f"{found[side][name]:,.6g}" for side in found)] for name in found["plain"]]
    head = ["", "sentences", "seconds", "CPU seconds: program, kernel", "sentences/s and core", "times the peer"]
    parts = [
        *beginning("Preparing records", "prepare_speed.py", args),
        f"{cut['documents']:,} documents of {cut['sentences']:,} sentences, {cut['bytes'] / 1e6:.1f} MB; reading the "
        f"corpus and cutting it into sentences, before all that follows, took {cut['seconds']:.1f} CPU seconds.",
        "## Speed",
        table(head, speeds),
        f"Sentences/s and core: over the CPU seconds of all threads. The command's are those of the whole process, its "
        f"start included, in {args.num_shards} shards. With 1 and 2 processes it wrote the same bytes.",
        "## Memory",
        table(["corpus", "sentences", "largest process, MB", "anonymous, together, MB", "seconds"], peaks),
        f"With 2 processes and {args.num_shards} shards for the corpus once, {args.num_shards * args.times} for it "
        f"{args.times} times: {growth[0]} and {growth[1]}. The peer takes {peer['peak_mb']:,} MB for it once.",
        "## Statistics",
        table(["", *found], counted),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
