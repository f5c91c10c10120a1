"""Corpora in memory, as `Source` has them, and the options of making small records of them."""

import functools
import random

from tests.support.flag_values import configured
from tfbert.config.tasks import PRETRAINING
from tfbert.corpus import sources
from tfbert.modes.pretrain import prepare

WIDTH = 32
WORDS = [a + b for a in "bdfgklmnprst" for b in ("an", "el", "ir", "ot", "um")]
CORPUS_VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s", "##ing", ".", ","]


ListedCorpus = functools.partial(sources.ListedCorpus, name="the list")
"""Of the documents of each part."""


def made_up_corpus(num_documents=60, num_parts=3, seed=0, least_sentences=1):
    """Documents of 1 to 12 sentences."""
    rng = random.Random(seed)

    def sentence():
        words = [rng.choice(WORDS) + rng.choice(["", "", "s", "ing"]) for _ in range(rng.randint(1, 14))]
        return " ".join(words) + "."

    parts = {f"part-{i}": [] for i in range(num_parts)}
    for number in range(num_documents):
        parts[f"part-{number % num_parts}"].append([sentence() for _ in range(rng.randint(least_sentences, 12))])
    return ListedCorpus(parts)


def config(**options):
    """Four shards, by one process, and other options by their names."""
    common = {"max_seq_length": WIDTH, "num_shards": 4, "num_processes": 1, "learn_vocab": 100}
    return configured("prepare", **common | {"output_dir": "records"} | options)


def prepare_files(files, out, **options):
    """The totals of `--mode=prepare` of files, by one process, with these options."""
    common = {"max_seq_length": WIDTH, "task": PRETRAINING, "input_files": [files], "num_processes": 1}
    return prepare(configured("prepare", **common | {"output_dir": out} | options))


def content(directory):
    """All files of a directory by their paths in it, but for locks."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}
