"""Sequences of choices, and batches of them, plain and packed, against NumPy and transformers' tokenizer."""

import numpy as np
import pytest
import tensorflow as tf
from transformers import BertTokenizerFast

from tests.support.models import tiny_bert
from tests.support.refusals import refused
from tests.support.runs import tokenizer_of
from tfbert import ChoosingConfig, Config, DataConfig, TrainingConfig
from tfbert.batches.pipeline import make_dataset
from tfbert.batches.plan import BatchPlan, choose_packed_shape, plan_packed_epoch
from tfbert.batches.schedule import plan_run, planned_steps, training_batches
from tfbert.bert.models import TFBertForMultipleChoice
from tfbert.measure import Work, forward_flops
from tfbert.tasks.multiple_choice import Asked, MultipleChoice, encode_choices
from tfbert.tokens.vocabulary import SPECIAL_TOKENS

WORDS = ["the", "a", "film", "plot", "is", "was", "very", "good", "bad", "who", "what", "ella", "tom", "sang", "wrote"]
LENGTH = 20
TOKENIZER = tokenizer_of([*SPECIAL_TOKENS, *WORDS, "##s"])


@pytest.fixture(scope="module")
def asked():
    rng = np.random.default_rng(3)

    def words(least, most):
        return " ".join(map(str, rng.choice(WORDS, rng.integers(least, most))))

    return [
        Asked(
            context=words(1, 25) if i % 7 else "",
            question=words(1, 5) if i % 5 or not i % 7 else "",
            choices=tuple(words(1, 5) for _ in range(rng.integers(2, 6))),
        )
        for i in range(23)
    ]


@pytest.fixture(scope="module")
def encoded(asked):
    labels = np.array([i % len(one.choices) for i, one in enumerate(asked)], np.int32)
    return encode_choices(asked, TOKENIZER, LENGTH, labels=labels, where=lambda row: f"row {row}")


def test_rows_are_those_of_transformers_with_the_context_cut(asked, encoded, tmp_path):
    TOKENIZER.save(tmp_path)
    theirs, sequence, cut = BertTokenizerFast.from_pretrained(tmp_path), 0, set()
    for row, one in enumerate(asked):
        first, question = (one.context, one.question) if one.context else (one.question, "")
        for choice in one.choices:
            second = f"{question} {choice}".strip()
            own = theirs(first, second, truncation="only_first", max_length=LENGTH)
            start, end = encoded.tokens.row_splits[sequence : sequence + 2]
            assert encoded.tokens.flat[start:end].tolist() == own["input_ids"]
            assert encoded.tokens.second_start[sequence] == own["token_type_ids"].index(1)
            if len(theirs(first, second)["input_ids"]) > LENGTH:
                cut.add(row)
            sequence += 1
        assert encoded.splits[row + 1] == sequence
    assert encoded.num_cut == len(cut) > 0 and len(encoded) == len(asked)


TOO_LONG = [
    Asked(context="the film", question="what is it", choices=("good", "very " * 13 + "bad")),
    Asked(context="", question="what " * 17, choices=("good", "bad")),
    Asked(context="", question="what " * 12, choices=("good", "very very very very very bad")),
]


@pytest.mark.parametrize("one", TOO_LONG)
def test_a_question_or_a_choice_is_never_cut(one):
    with refused("only the context is cut.* in row 0"):
        encode_choices([one], TOKENIZER, LENGTH, labels=np.zeros(1), where=lambda row: f"row {row}")


def test_plain_batches(encoded):
    rows = np.array([[4, 0, 2, -1]])
    plan = BatchPlan(rows=rows, widths=np.array([LENGTH], np.int32))
    ((inputs, labels, weights),) = make_dataset(encoded, lambda: iter([plan]), range(1), 1).as_numpy_iterator()
    counts = np.diff(encoded.splits)
    assert labels.tolist() == [*encoded.labels[[4, 0, 2]], 0] and weights.tolist() == [1, 1, 1, 0]
    for place, row in enumerate(rows[0]):
        count = 0 if row < 0 else int(counts[row])
        for choice in range(counts.max()):
            ids, mask, types = (inputs[n][place, choice] for n in ("input_ids", "attention_mask", "token_type_ids"))
            if choice >= count:
                assert mask.tolist() == [1] + [0] * (LENGTH - 1) and not ids.any() and not types.any()
                continue
            sequence = encoded.splits[row] + choice
            own = encoded.tokens.flat[slice(*encoded.tokens.row_splits[sequence : sequence + 2])]
            assert ids.tolist() == [*own, *[0] * (LENGTH - len(own))]
            assert mask.sum() == len(own)
            assert types.tolist() == [int(encoded.tokens.second_start[sequence] <= i < len(own)) for i in range(LENGTH)]


def test_packed_questions_give_the_loss_and_gradients_of_plain_ones(encoded):
    task = MultipleChoice(ChoosingConfig())
    totals, options = encoded.lengths.sum(axis=1), {"global_batch_size": 8, "seed": 3}
    shape = choose_packed_shape(totals, **options, epochs=range(1), num_parts=2, max_width=60)
    plan = plan_packed_epoch(totals, **options, epoch=0, shape=shape)
    packed = list(make_dataset(encoded, lambda: iter([plan]), range(1), 1, shape=shape))
    widths = np.full(len(plan), encoded.lengths.max(), np.int32)
    plain = list(make_dataset(encoded, lambda: iter([BatchPlan(rows=plan.rows, widths=widths)]), range(1), 1))
    model = tiny_bert(num_labels=1, num_hidden_layers=1, kind=TFBertForMultipleChoice)

    def compute(inputs, labels, weights):
        with tf.GradientTape() as tape:
            logits = task.head().forward(model, inputs, True)
            value = tf.reduce_sum(weights * task.loss(TrainingConfig()).call(labels, logits))
        return value, logits, [tf.convert_to_tensor(g) for g in tape.gradient(value, model.trainable_variables)]

    for one, other in zip(packed, plain, strict=True):
        # A packed batch is computed micro-batch by micro-batch.
        halves = [tuple(tf.nest.map_structure(lambda t, i=i: tf.split(t, 2)[i], part) for part in one) for i in (0, 1)]
        (a, first, mine), (b, second, others) = (compute(*half) for half in halves)
        expected, logits, theirs = compute(*other)
        np.testing.assert_allclose(np.concatenate([first, second]), logits, atol=1e-5)
        assert float(a + b) == pytest.approx(float(expected), rel=1e-5)
        size = float(tf.linalg.global_norm(theirs))
        for variable, x, y, z in zip(model.trainable_variables, mine, others, theirs, strict=True):
            np.testing.assert_allclose(x + y, z, atol=1e-5 * max(1.0, size), rtol=0, err_msg=variable.name)


def test_logits_are_those_of_transformers_and_missing_choices_have_none(encoded):
    model = tiny_bert(num_labels=1, kind=TFBertForMultipleChoice)
    plan = BatchPlan(rows=np.arange(8)[None], widths=np.array([LENGTH], np.int32))
    ((inputs, _, _),) = make_dataset(encoded, lambda: iter([plan]), range(1), 1)
    logits = MultipleChoice(ChoosingConfig()).head().forward(model, inputs, False).numpy()
    is_there = np.arange(logits.shape[1]) < np.diff(encoded.splits)[:8, None]
    np.testing.assert_allclose(logits[is_there], model(inputs, training=False).logits[is_there], atol=1e-5)
    assert (logits[~is_there] == -10000).all()


def test_what_is_reported_counts_every_token_and_every_choice_once(encoded):
    data = DataConfig(max_seq_length=LENGTH, task="multiple_choice")
    config = Config(data=data, training=TrainingConfig(num_train_epochs=1.0, global_batch_size=8)).resolved()
    resolved = training_batches(config, encoded.lengths, plan_run(config, len(encoded)), num_replicas=1)
    (plan,) = resolved.plans()
    share = len(encoded.tokens.flat) / (plan.widths.sum() * 8 * np.diff(encoded.splits).max())
    assert resolved.description == f"length grouped: {share:.1%} real tokens"
    total = sum((work for work, _ in planned_steps(iter([plan]), encoded.lengths)), Work())
    assert total == Work.of(encoded.lengths)
    assert (total.examples, total.tokens) == (len(encoded), len(encoded.tokens.flat))
    assert total.sequences == len(encoded.tokens)
    assert total.squared_tokens == (encoded.tokens.lengths.astype(int) ** 2).sum()
    # The arithmetic is that of the sequences as examples of their own.
    bert = tiny_bert(num_labels=1, num_hidden_layers=1, kind=TFBertForMultipleChoice).config
    assert forward_flops(bert, total) == forward_flops(bert, Work.of(encoded.tokens.lengths))
