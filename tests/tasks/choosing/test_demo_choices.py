"""The built-in questions: always the same, with one right choice, and told in the context."""

import hashlib

import numpy as np

from tfbert.tasks.choosing.demo import NUM_TRAIN, NUM_VALIDATION, demo_choices


def test_the_same_everywhere():
    """In every process and on every Python: scores on it can be compared."""
    sets = demo_choices()
    assert [len(part) for part in sets] == [NUM_TRAIN, NUM_VALIDATION]
    text = repr([[(a.context, a.question, a.choices, a.index) for a in part.asked] for part in sets])
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "daed8f790788b913995ed3b9a252cd55e5a9e0fd2b49f6d25daad96d2430ffec"
    )


def test_one_choice_is_right_and_no_context_is_in_both_sets():
    train, validation = demo_choices()
    assert not {one.context for one in train.asked} & {one.context for one in validation.asked}
    assert set(train.counts) == {2, 3, 4}
    for one in train.asked + validation.asked:
        assert one.choices[one.index] in one.context and len(set(one.choices)) == len(one.choices)
    # Nothing can be had from the place of the right choice.
    for count in (2, 3, 4):
        places = np.bincount(train.labels[train.counts == count], minlength=count)
        assert places.min() > 0.8 * places.mean()
