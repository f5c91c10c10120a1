"""The built-in corpus of tagged words: always the same, without repeats, and of no use to learn by heart."""

import collections
import hashlib
import itertools
import json

import numpy as np

from tfbert.tasks.tagging.demo import NUM_TRAIN, NUM_VALIDATION, TYPES, demo_tagged_data
from tfbert.tasks.tagging.entities import entity_metrics, find_entities
from tfbert.tasks.tagging.tags import TagMeanings, class_names, invalid_transitions, scheme_of

CLASSES = ("O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-PER", "I-PER")


def test_sizes_tags_and_no_repeats():
    train, validation = demo_tagged_data()
    assert (len(train), len(validation)) == (NUM_TRAIN, NUM_VALIDATION) == (2000, 200)
    assert len({tuple(words) for words in train.words + validation.words}) == 2200
    for table in (train, validation):
        assert [len(words) for words in table.words] == [len(tags) for tags in table.tags]
        assert scheme_of(table.tags).name == "IOB2" and not scheme_of(table.tags).doubt
        assert invalid_transitions(table.tags, scheme_of(table.tags)) is None
        assert class_names(table.tags) == CLASSES
        starts = collections.Counter(tag for tags in table.tags for tag in tags if tag[0] == "B")
        assert min(starts.values()) > max(starts.values()) / 2, "no type is rare"
        assert ["O"] in [sorted(set(tags)) for tags in table.tags], "a sentence without a name"
    assert validation.where(3) == "demo validation, example 4"
    assert len({word for words in train.words for word in words}) < 1200


def test_the_same_everywhere():
    """In every process, whatever the hash seed, and on Python 3.10 to 3.13: scores on it can be compared."""
    text = json.dumps([[table.words, table.tags] for table in demo_tagged_data()])
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert digest == "e511fc092e3dbecc021f1bd3a4bb76958a6b732988c1d61b84865bf3d02edfd5"


def test_half_of_the_names_are_new():
    train, validation = demo_tagged_data()
    known = {word for words in train.words for word in words}
    names = [
        word
        for words, tags in zip(validation.words, validation.tags, strict=True)
        for word, tag in zip(words, tags, strict=True)
        if tag != "O" and (word not in known or len(word) > 3)
    ]
    assert 0.25 < sum(word not in known for word in names) / len(names) < 0.6
    others = {
        word
        for words, tags in zip(validation.words, validation.tags, strict=True)
        for word, tag in zip(words, tags, strict=True)
        if tag == "O"
    }
    assert others <= known


def test_the_same_names_are_of_all_types():
    train, _ = demo_tagged_data()
    types = collections.defaultdict(set)
    for word, tag in zip(itertools.chain(*train.words), itertools.chain(*train.tags), strict=True):
        if tag[0] == "B":
            types[word].add(tag)
    assert sum(len(found) > 1 for found in types.values()) > len(types) / 2
    assert {tag for found in types.values() for tag in found} == {f"B-{kind}" for kind in TYPES}


def test_learning_words_by_heart_is_not_enough():
    """Each word's most frequent tag in training, a frequent name's for new words."""
    train, validation = demo_tagged_data()
    counts = collections.defaultdict(collections.Counter)
    for word, tag in zip(itertools.chain(*train.words), itertools.chain(*train.tags), strict=True):
        counts[word][tag] += 1
    meanings, index = TagMeanings.of(CLASSES), {name: i for i, name in enumerate(CLASSES)}
    guesses = [
        index[counts[word].most_common(1)[0][0] if word in counts else "B-PER"]
        for word in itertools.chain(*validation.words)
    ]
    gold = [index[tag] for tag in itertools.chain(*validation.tags)]
    sentences = np.repeat(np.arange(len(validation)), [len(words) for words in validation.words])
    found, right = (find_entities(np.array(ids), sentences, meanings) for ids in (guesses, gold))
    assert 0.1 < entity_metrics(right, found)["f1"] < 0.5
