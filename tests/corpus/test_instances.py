"""Instances against Google's script read plainly: the same statistics, the same rules for each single one."""

import random
import types

import numpy as np
import pytest

from tfbert.corpus.shards import TokenizedDocuments, _cut_pair, assemble, full_sentences, pairs, tokenize

CLS, SEP, PAD = 2, 3, 0
IDS = types.SimpleNamespace(cls_id=CLS, sep_id=SEP, pad_id=PAD)
WIDTH = 64


def corpus(num_documents=400, seed=0, most_sentences=20):
    """Documents of sentences of tokens, each token another number, so that it tells where it is from."""
    rng = np.random.default_rng(seed)
    documents, token = [], 10
    for _ in range(num_documents):
        document = []
        for length in rng.integers(1, 30, rng.integers(1, most_sentences + 1)):
            document.append(list(range(token, token + length)))
            token += length
        documents.append(document)
    return documents


def flat(documents):
    sentences = [sentence for document in documents for sentence in document]
    lengths, counts = (np.array([len(part) for part in parts]) for parts in (sentences, documents))
    tokens = np.array([token for sentence in sentences for token in sentence], np.int32)
    return TokenizedDocuments(tokens=tokens, sentence_ends=np.cumsum(lengths), document_ends=np.cumsum(counts))


def plain_pairs(documents, max_seq_length, short_seq_prob, rng):
    """create_instances_from_document of google-research/bert, as its paper and script describe it, in plain Python."""
    out = []
    for index, document in enumerate(documents):
        room = max_seq_length - 3
        target = rng.randint(2, room) if rng.random() < short_seq_prob else room
        chunk, i = [], 0
        while i < len(document):
            chunk.append(document[i])
            if i == len(document) - 1 or sum(map(len, chunk)) >= target:
                split = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
                a, b = sum(chunk[:split], []), []
                is_random = len(chunk) == 1 or rng.random() < 0.5
                if is_random:
                    wanted, other = target - len(a), index
                    while other == index:
                        other = rng.randint(0, len(documents) - 1)
                    for sentence in documents[other][rng.randint(0, len(documents[other]) - 1) :]:
                        b += sentence
                        if len(b) >= wanted:
                            break
                    i -= len(chunk) - split
                else:
                    b = sum(chunk[split:], [])
                out.append((*plain_cut(a, b, room, rng), is_random))
                chunk = []
            i += 1
    return out


def plain_cut(a, b, room, rng):
    a, b = list(a), list(b)
    while len(a) + len(b) > room:
        longer = a if len(a) > len(b) else b
        if rng.random() < 0.5:
            del longer[0]
        else:
            longer.pop()
    return a, b


def rows_of(tokens, spans):
    return assemble(tokens, spans, max_seq_length=WIDTH, tokenizer=IDS)


def split_row(ids, length, second):
    assert ids[0] == CLS and ids[length - 1] == SEP and not ids[length:].any()
    if second == length:
        return ids[1 : length - 1].tolist(), []
    assert ids[second - 1] == SEP
    return ids[1 : second - 1].tolist(), ids[second : length - 1].tolist()


def test_statistics_are_those_of_the_plain_algorithm():
    documents = corpus()
    found = []
    for seed in range(12):
        spans = pairs(flat(documents), max_seq_length=WIDTH, short_seq_prob=0.2, rng=random.Random(seed))
        a, b, c, d, is_random = spans.T
        ours = np.stack([b - a, d - c, is_random], 1)
        plain = plain_pairs(documents, WIDTH, 0.2, random.Random(1000 + seed))
        for sizes in (ours, np.array([(len(a), len(b), is_random) for a, b, is_random in plain])):
            found.append([len(sizes), *sizes.mean(0), *sizes.std(0), *np.percentile(sizes[:, 0], [10, 50, 90])])
    ours, theirs = np.array(found[::2]), np.array(found[1::2])
    error = np.sqrt((ours.var(0) + theirs.var(0)) / 12)
    assert (abs(ours.mean(0) - theirs.mean(0)) <= 4 * error + 1e-9).all(), (ours.mean(0), theirs.mean(0), error)
    assert 0.5 < theirs[:, 3].mean() < 0.75  # Chunks of one sentence are random always.


def test_each_pair_keeps_the_rules():
    documents = corpus()
    of_token = {t: (d, s) for d, document in enumerate(documents) for s, part in enumerate(document) for t in part}
    spans = pairs(flat(documents), max_seq_length=WIDTH, short_seq_prob=0.1, rng=random.Random(0))
    ids, lengths, second = rows_of(flat(documents).tokens, spans)
    for row in range(len(spans)):
        a, b = split_row(ids[row], lengths[row], second[row])
        assert a and b and len(a) + len(b) <= WIDTH - 3
        for part in (a, b):
            assert part == list(range(part[0], part[-1] + 1))  # A stretch of one document.
            assert of_token[part[0]][0] == of_token[part[-1]][0]
        is_other = of_token[a[0]][0] != of_token[b[0]][0]
        assert is_other == spans[row, 4]
        if not is_other:
            assert of_token[b[0]][1] >= of_token[a[-1]][1] + 1


def test_every_token_is_in_some_first_or_following_stretch_but_those_cut():
    documents = corpus(50)
    spans = pairs(flat(documents), max_seq_length=4096, short_seq_prob=0, rng=random.Random(0))
    seen = np.zeros(len(flat(documents).tokens), int)
    for a, b, c, d, is_random in spans:
        seen[a:b] += 1
        if not is_random:
            seen[c:d] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize("room", [9, 10])
def test_both_stretches_keep_as_many_tokens_as_in_the_plain_loop(room):
    for length_a in range(1, 16):
        for length_b in range(1, 16):
            a, b, c, d = _cut_pair(100, 100 + length_a, 500, 500 + length_b, room, random.Random(0))
            kept_a, kept_b = plain_cut([0] * length_a, [0] * length_b, room, random.Random(0))
            assert (b - a, d - c) == (len(kept_a), len(kept_b)), (length_a, length_b)
            assert 100 <= a <= b <= 100 + length_a and 500 <= c <= d <= 500 + length_b


def test_tokens_are_cut_from_both_ends_alike():
    rng = random.Random(0)
    fronts = [_cut_pair(0, 20, 100, 110, 20, rng)[0] for _ in range(4000)]
    assert abs(np.mean(fronts) - 5) < 0.1 and abs(np.var(fronts) - 2.5) < 0.25  # Binomial(10, 1/2).


@pytest.mark.parametrize("short_seq_prob", [0, 0.3])
def test_full_sentences_hold_every_token_once(short_seq_prob):
    documents = corpus(60)
    documents[7].append(list(range(90_000, 90_200)))  # Longer than a record.
    last_of = {document[-1][-1] for document in documents}
    options = {"short_seq_prob": short_seq_prob, "sep_id": SEP, "rng": random.Random(1)}
    tokens, spans = full_sentences(flat(documents), max_seq_length=WIDTH, **options)
    ids, lengths, second = rows_of(tokens, spans)
    assert (second == lengths).all() and not spans[:, 2:].any() and lengths.max() == WIDTH
    seen = []
    for row in range(len(ids)):
        body = ids[row, 1 : lengths[row] - 1].tolist()
        for place, token in enumerate(body):
            if token == SEP:
                assert body[place - 1] in last_of
        assert body[0] != SEP and body[-1] != SEP
        seen += [token for token in body if token != SEP]
    assert sorted(seen) == sorted(token for document in documents for sentence in document for token in sentence)
    if not short_seq_prob:
        assert lengths.mean() > 0.75 * WIDTH  # Sentences have 15 tokens.
        # No sentence that had room was left for the next record.
        firsts = {sentence[0]: len(sentence) for document in documents for sentence in document}
        for row in range(len(ids) - 1):
            following = int(ids[row + 1, 1])
            gap = 1 if ids[row, lengths[row] - 2] in last_of else 0
            assert lengths[row] + gap + firsts.get(following, WIDTH) > WIDTH


def test_empty_sentences_and_documents_are_left_out():
    lengths = np.array([0, 2, 0, 0, 3, 1])
    tokenizer = types.SimpleNamespace(ids_of=lambda texts: (np.arange(6, dtype=np.int32), lengths))
    documents = tokenize(types.SimpleNamespace(tokenizer=tokenizer), [b"a\nb"] * 3)
    assert documents.sentence_ends.tolist() == [2, 5, 6] and documents.document_ends.tolist() == [1, 3]
