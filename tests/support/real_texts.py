"""The real data of tests that opt in, by `TFBERT_DATA_DIR` and `TFBERT_VOCAB_DIR`; without these such tests skip."""

import json
import os
import pathlib

import pytest

from tests.support.texts import hugging_face
from tfbert.tokens.tokenizer import BertTokenizer

is_given = "TFBERT_DATA_DIR" in os.environ and "TFBERT_VOCAB_DIR" in os.environ
needs_real_data = pytest.mark.skipif(not is_given, reason="needs the real data")
VOCABULARIES = {
    "uncased": ("bert_base_uncased_vocab.txt", True),
    "cased": ("bert_base_cased_vocab.txt", False),
    "scibert": ("scibert_scivocab_uncased.txt", True),
}
SQUAD = ("new_wiki", "amazon", "xquad_en", "dev_v2")


def tokenizers(name):
    """One of `VOCABULARIES`, as ours and as Hugging Face's, which is to cut nothing."""
    file, lower = VOCABULARIES[name]
    path = pathlib.Path(os.environ["TFBERT_VOCAB_DIR"], file)
    reference = hugging_face(path, do_lower_case=lower, model_max_length=1 << 20)
    return BertTokenizer.from_vocab_file(path, do_lower_case=lower), reference


def squad(name):
    """Questions, distinct contexts, the context of each question, and its answers as (text, start)."""
    file = pathlib.Path(os.environ["TFBERT_DATA_DIR"], "squad", f"{name}.json")
    paragraphs = [part for article in json.loads(file.read_text())["data"] for part in article["paragraphs"]]
    asked = [(i, question) for i, part in enumerate(paragraphs) for question in part["qas"]]
    return (
        [question["question"] for _, question in asked],
        [part["context"] for part in paragraphs],
        [i for i, _ in asked],
        [[(answer["text"], answer["answer_start"]) for answer in question["answers"]] for _, question in asked],
    )


def ncbi_sentences():
    """The words of each sentence of the NCBI disease corpus, all three splits."""
    sentences = []
    for split in ("train", "dev", "test"):
        text = pathlib.Path(os.environ["TFBERT_DATA_DIR"], "ncbi_disease", f"{split}.txt").read_text()
        blocks = text.replace("\r\n", "\n").split("\n\n")
        sentences += [[line.split("\t")[0] for line in block.split("\n") if line] for block in blocks if block.strip()]
    return sentences
