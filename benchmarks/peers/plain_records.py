"""The peer of `--mode=prepare`: google-research/bert's algorithm in plain Python, one process, all documents in memory.

    python benchmarks/peers/plain_records.py --input_file=corpus.txt --vocab_file=vocab.txt --output_file=out.tfrecord

Written from the paper and from what the script does, not copied from it. It needs TensorFlow only to write the file,
and transformers for the tokenizer: BERT's basic tokenizer and WordPiece as they were first written, in Python. Prints a
JSON line: sentences, records, and the CPU seconds from the first line read to the last record written.
"""

import argparse
import itertools
import json
import pathlib
import random
import resource
import time

import tensorflow as tf
from transformers.models.bert.tokenization_bert import BertTokenizer

Sentence = list[str]
Document = list[Sentence]


def main() -> None:
    """Makes one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("input_file", "vocab_file", "output_file"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--max_predictions_per_seq", type=int, default=20)
    parser.add_argument("--masked_lm_prob", type=float, default=0.15)
    parser.add_argument("--short_seq_prob", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    tokenizer = BertTokenizer(args.vocab_file)
    words = list(tokenizer.vocab)
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    documents = read(args.input_file, tokenizer)
    rng.shuffle(documents)
    pairs = [pair for number in range(len(documents)) for pair in pairs_of(documents, number, args, rng)]
    records = [masked(*pair, words, args, rng) for pair in pairs]
    rng.shuffle(records)
    with tf.io.TFRecordWriter(args.output_file) as writer:
        for record in records:
            writer.write(example(record, tokenizer.vocab, args).SerializeToString())
    after = resource.getrusage(resource.RUSAGE_SELF)
    found = {"sentences": sum(map(len, documents)), "records": len(records)}
    found |= {"seconds": time.perf_counter() - start, "user_seconds": after.ru_utime - before.ru_utime}
    print(json.dumps(found | {"kernel_seconds": after.ru_stime - before.ru_stime}))


def read(path: str, tokenizer: BertTokenizer) -> list[Document]:
    """The documents of a file with one sentence per line and a blank line between documents."""
    documents: list[Document] = [[]]
    with pathlib.Path(path).open(encoding="utf-8") as lines:
        for line in lines:
            if not line.strip():
                documents.append([])
                continue
            words = tokenizer.basic_tokenizer.tokenize(line)
            if pieces := list(itertools.chain.from_iterable(map(tokenizer.wordpiece_tokenizer.tokenize, words))):
                documents[-1].append(pieces)
    return [document for document in documents if document]


def pairs_of(documents: list[Document], number: int, args, rng: random.Random):
    """The pairs of one document: (tokens of A, tokens of B, whether B is from another document)."""
    document, room = documents[number], args.max_seq_length - 3
    target = rng.randint(2, room) if rng.random() < args.short_seq_prob else room
    first = 0
    while first < len(document):
        stop, length = first, 0
        while stop < len(document) and length < target:
            length += len(document[stop])
            stop += 1
        split = first + (rng.randint(1, stop - first - 1) if stop - first > 1 else 1)
        a = joined(document[first:split])
        is_random = stop - first == 1 or rng.random() < 0.5
        if is_random:
            other = number
            while other == number:
                other = rng.randrange(len(documents))
            b: Sentence = []
            for sentence in documents[other][rng.randrange(len(documents[other])) :]:
                b.extend(sentence)
                if len(b) >= target - len(a):
                    break
            first = split  # What A does not use is used again.
        else:
            b = joined(document[split:stop])
            first = stop
        while len(a) + len(b) > room:
            longer = a if len(a) > len(b) else b
            longer.pop(0 if rng.random() < 0.5 else -1)
        yield a, b, is_random


def joined(sentences: list[Sentence]) -> Sentence:
    """The tokens of all sentences, as a new list."""
    return list(itertools.chain.from_iterable(sentences))


def masked(a: Sentence, b: Sentence, is_random: bool, words: list[str], args, rng: random.Random) -> dict:
    """A record as text, masked, with the words to predict."""
    tokens = ["[CLS]", *a, "[SEP]", *b, "[SEP]"]
    places = [place for place, token in enumerate(tokens) if token not in ("[CLS]", "[SEP]")]
    rng.shuffle(places)
    count = min(args.max_predictions_per_seq, max(1, round(len(tokens) * args.masked_lm_prob)))
    places = sorted(places[:count])
    labels = [tokens[place] for place in places]
    for place in places:
        if rng.random() < 0.8:
            tokens[place] = "[MASK]"
        elif rng.random() < 0.5:
            tokens[place] = words[rng.randrange(len(words))]
    segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
    return {"tokens": tokens, "segments": segments, "places": places, "labels": labels, "is_random": is_random}


def example(record: dict, ids: dict[str, int], args) -> tf.train.Example:
    """The record in Google's schema."""

    def ints(values: list[int], width: int) -> tf.train.Feature:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values + [0] * (width - len(values))))

    width, most = args.max_seq_length, args.max_predictions_per_seq
    labels = [ids[token] for token in record["labels"]]
    weights = [1.0] * len(labels) + [0.0] * (most - len(labels))
    features = {
        "input_ids": ints([ids[token] for token in record["tokens"]], width),
        "input_mask": ints([1] * len(record["tokens"]), width),
        "segment_ids": ints(record["segments"], width),
        "masked_lm_positions": ints(record["places"], most),
        "masked_lm_ids": ints(labels, most),
        "masked_lm_weights": tf.train.Feature(float_list=tf.train.FloatList(value=weights)),
        "next_sentence_labels": ints([int(record["is_random"])], 1),
    }
    return tf.train.Example(features=tf.train.Features(feature=features))


if __name__ == "__main__":
    main()
