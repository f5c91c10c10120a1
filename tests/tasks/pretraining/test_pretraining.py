"""The task of pre-training: updates against plain gradients, metrics against all logits, what a report shows."""

import dataclasses
import itertools
import json
import types
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax

from tests.support.batches import BATCH
from tests.support.models import VOCAB, strategy_of, tiny_bert
from tests.support.records import some_records, write_records
from tests.support.reports import make_run, note
from tfbert import DataConfig, PretrainingConfig, RunError, TrainingConfig, UsageError
from tfbert.batches.pipeline import MaskedChunk, MaskedRecords, distribute_batches
from tfbert.batches.plan import choose_packed_shape, plan_epoch, plan_packed_epoch
from tfbert.bert.models import TFBertForMaskedLM, TFBertForPreTraining
from tfbert.config.tasks import TaskOptions
from tfbert.corpus.records import open_records
from tfbert.model.forward import forward_pretraining
from tfbert.model.predictor import Predictor
from tfbert.report.pages import write_report
from tfbert.report.run_files import evaluation_facts
from tfbert.step.keras3.finetuner import FineTuner
from tfbert.tasks import pretraining
from tfbert.tasks.pretraining import MaskedPredictions, Pretraining
from tfbert.tasks.tables import load_data
from tfbert.tokens.tokenizer import BertTokenizer, TokenIds
from tfbert.tokens.vocabulary import SPECIAL_TOKENS
from tfbert.train.build import start_head

RATE, STEPS, RECORDS = 0.5, 2, 37
NAMES = ("input_ids", "attention_mask", "token_type_ids")
TOKENIZER = BertTokenizer([*SPECIAL_TOKENS] + [f"{'##' * (i % 4 == 0)}w{i}" for i in range(5, VOCAB)])


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Pairs of 5 to 16 tokens."""
    path = tmp_path_factory.mktemp("records") / "some.tfrecord"
    return open_records([str(write_records(path, some_records(RECORDS)))])


def encoded(records, task=None, training=None):
    task = task or Pretraining(options=PretrainingConfig(masked_lm_prob=0.3))
    return task.encode(records, TOKENIZER, 16, training)


# Training.


@pytest.mark.parametrize("masking", ["dynamic", pytest.param("static", marks=pytest.mark.slow)])
def test_a_new_head_starts_at_the_frequencies_of_masked_words(records, masking, monkeypatch):
    """All of the records, or of some that are spread over them, in a model whose file has no such head."""
    task = Pretraining(options=PretrainingConfig(masked_lm_prob=0.3, masking=masking))
    rows = encoded(records, task, TrainingConfig())
    for limit, chosen in ((100, range(RECORDS)), (4, [0, 12, 24, 36])):
        monkeypatch.setattr(pretraining, "_COUNTED_RECORDS", limit)
        counts = np.full(VOCAB, 0.5)
        for row in chosen:
            masked = rows.masked(np.array([row]))
            for word in masked.labels[masked.weights > 0].tolist():
                counts[word] += 1
        start = task.head_start(rows, TrainingConfig())
        np.testing.assert_allclose(start.bias, np.log(counts) - np.log(counts).mean(), atol=1e-6)
        assert start.words == f"the frequencies of words in {len(chosen)} records"
    model = tiny_bert(kind=TFBertForPreTraining, num_hidden_layers=1)
    for new, expected in ((set(), 0), ({"cls.predictions.bias"}, start.bias)):
        model.new_weights = new
        said = start_head(task, model, rows, TrainingConfig())
        assert said == "The new head starts at the frequencies of words in 4 records" * bool(new)
        np.testing.assert_array_equal(model.mlm.predictions.bias.numpy(), np.broadcast_to(expected, VOCAB))
    assert start_head(task, model, rows, TrainingConfig(head_bias="zero")) == ""


def plain_loss(model, batch):
    """By the model's own call: masked words over the masked places, pairs over the pairs."""
    inputs, labels, weights = batch
    outputs = model({name: inputs[name] for name in NAMES}, training=True)
    is_masked = weights["masked_lm"] > 0
    places = np.stack([np.nonzero(is_masked)[0], inputs["masked_lm_positions"][is_masked]], axis=1)
    logits = tf.gather_nd(outputs[0], places)
    words = tf.nn.sparse_softmax_cross_entropy_with_logits(labels["masked_lm"][is_masked], logits)
    if not isinstance(model, TFBertForPreTraining):
        return tf.reduce_mean(words)
    is_pair = weights["next_sentence"] > 0
    answers, logits = labels["next_sentence"][is_pair], outputs.seq_relationship_logits[is_pair]
    pairs = tf.nn.sparse_softmax_cross_entropy_with_logits(answers, logits)
    return tf.reduce_mean(words) + tf.reduce_mean(pairs)


SLOW = [(True, 2, 2, False, False), (True, 1, 1, False, False), (False, 1, 4, False, False), (True, 1, 2, True, False)]
SLOW += [(False, 2, 1, True, False), (True, 1, 2, False, True), (True, 2, 2, True, True)]
CASES = [(False, 1, 2, True, False), *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW)]


@pytest.mark.parametrize("next_sentence, replicas, accumulation, is_packed, xla", CASES)
def test_updates_are_those_of_one_plain_batch(records, next_sentence, replicas, accumulation, is_packed, xla):
    task = Pretraining(next_sentence=next_sentence, options=PretrainingConfig(masked_lm_prob=0.3), seed=5)
    examples = encoded(records, task, TrainingConfig())
    lengths, options, shape = np.asarray(examples.lengths), {"global_batch_size": BATCH, "seed": 3}, None
    if is_packed:
        parts = replicas * accumulation
        shape = choose_packed_shape(lengths, **options, epochs=range(2), num_parts=parts, max_width=32)
        plan = plan_packed_epoch(lengths, **options, epoch=1, shape=shape)
        part = dataclasses.replace(plan, rows=plan.rows[-STEPS:], starts=plan.starts[-STEPS:])
    else:
        widths = np.arange(1, max(lengths) + 1)
        plan = plan_epoch(lengths, **options, epoch=1, group_by_length=False, allowed_widths=widths)
        part = dataclasses.replace(plan, rows=plan.rows[-STEPS:], widths=plan.widths[-STEPS:])
    kind = TFBertForPreTraining if next_sentence else TFBertForMaskedLM

    reference = tiny_bert(kind=kind, num_hidden_layers=1)
    for rows in plan.rows[-STEPS:]:  # The last batch is short.
        with tf.GradientTape() as tape:
            loss = plain_loss(reference, examples.batch(rows, np.int32(16), 1, None))
        variables = reference.trainable_variables
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(RATE * tf.convert_to_tensor(gradient))

    strategy = strategy_of(replicas)
    options = {"gradient_accumulation_steps": accumulation, "forward": task.head().forward, "jit_compile": xla}
    with strategy.scope():
        model = FineTuner(tiny_bert(kind=kind, num_hidden_layers=1), **options)
        model.compile(optimizer=keras.optimizers.SGD(RATE), loss=task.loss(TrainingConfig()))
        model.create_variables()
    dataset = distribute_batches(strategy, examples, lambda: iter([part]), shape=shape)
    history = model.fit(dataset, steps_per_epoch=STEPS, verbose=0).history
    assert set(history) == ({"loss", "masked_lm_loss", "next_sentence_loss"} if next_sentence else {"loss"})
    for variable, expected in zip(model.model.trainable_variables, reference.trainable_variables, strict=True):
        np.testing.assert_allclose(variable, expected, atol=2e-5, err_msg=variable.name)
    assert len(plan) == -(-RECORDS // BATCH) and RECORDS % BATCH


# Evaluation.


SLOW_METRICS = [pytest.param(*case, marks=pytest.mark.slow) for case in ((1, True), (2, False))]


@pytest.mark.parametrize("replicas, next_sentence", [(1, False), *SLOW_METRICS])
def test_metrics_are_those_of_all_logits(records, replicas, next_sentence, monkeypatch):
    monkeypatch.setattr(MaskedRecords, "chunks", lambda self: original(self, 10))
    task = Pretraining(next_sentence=next_sentence)
    examples = encoded(records, task)
    strategy = strategy_of(replicas)
    with strategy.scope():
        model = tiny_bert(kind=TFBertForPreTraining if next_sentence else TFBertForMaskedLM, num_hidden_layers=1)

    def selected(inputs, training):
        return task.select_outputs(forward_pretraining(model, inputs, training), inputs)

    predictions = task.predict(Predictor(selected, strategy, rows_per_replica=3), examples, "held out")
    found = task.metrics(predictions, records, prefix="eval")

    inputs, labels, weights = examples.batch(np.arange(RECORDS), np.int32(16), 0, None)
    outputs = model({name: tf.constant(inputs[name]) for name in NAMES})
    logits = np.take_along_axis(np.float64(outputs[0]), inputs["masked_lm_positions"][:, :, None], axis=1)
    counts = weights["masked_lm"] > 0
    words, right = logits[counts], labels["masked_lm"][counts]
    loss = -log_softmax(words, axis=1)[np.arange(len(right)), right].mean()
    expected = {"masked_accuracy": (words.argmax(1) == right).mean(), "loss": loss, "perplexity": np.exp(loss)}
    if next_sentence:
        pairs, answers = np.float64(outputs.seq_relationship_logits), labels["next_sentence"]
        pair_loss = -log_softmax(pairs, axis=1)[np.arange(RECORDS), answers].mean()
        expected |= {"loss": loss + pair_loss, "masked_lm_loss": loss, "next_sentence_loss": pair_loss}
        expected["next_sentence_accuracy"] = (pairs.argmax(1) == answers).mean()
    assert set(expected) == set(task.metric_names)
    assert task.default_metric in expected and (next_sentence or "next_sentence_accuracy" not in expected)
    assert found == pytest.approx({f"eval_{name}": value for name, value in expected.items()}, rel=1e-4)

    np.testing.assert_array_equal(predictions.masked, np.bincount(right, minlength=VOCAB))
    np.testing.assert_array_equal(predictions.wrong, np.bincount(right[words.argmax(1) != right], minlength=VOCAB))
    first = predictions.kept[0]
    np.testing.assert_array_equal(first.ids, records.read(np.arange(1)).ids[0, : records.lengths[0]])
    np.testing.assert_array_equal(first.best, logits[0][counts[0]].argmax(1))


original = MaskedRecords.chunks


def test_masks_of_an_evaluation_are_always_the_same_and_those_of_training_are_not(records):
    tasks = [Pretraining(seed=seed) for seed in (0, 1)]
    one, other = (list(encoded(records, task).chunks())[0] for task in tasks)
    np.testing.assert_array_equal(one.positions, other.positions)
    np.testing.assert_array_equal(one.tokens.flat, other.tokens.flat)
    rows = np.arange(RECORDS)
    trained = [encoded(records, task, TrainingConfig()) for task in tasks]
    drawn = [examples.masked(rows, epoch).tokens.flat for examples, epoch in itertools.product(trained, (0, 1))]
    drawn.append(encoded(records).masked(rows).tokens.flat)
    for first, second in itertools.combinations(drawn, 2):
        assert (first != second).any()
    static = Pretraining(options=PretrainingConfig(masking="static"))
    examples = encoded(records, static, TrainingConfig())
    held = records.read(rows)
    is_token = np.arange(held.ids.shape[1]) < held.lengths[:, None]
    np.testing.assert_array_equal(examples.masked(rows, 0).tokens.flat, held.masked.ids[is_token])
    first, second = (encoded(records, task).masked(rows).tokens.flat for task in (static, tasks[0]))
    np.testing.assert_array_equal(first, second)


def chunk_of(ids, masked, next_sentence=None):
    """A record: its tokens, and its masked places."""
    positions, ids = np.array([[*masked, 0]], np.int32), np.array(ids, np.int32)
    labels, weights = np.where(positions > 0, ids[positions], 0), (positions > 0).astype(np.float32)
    given = ids.copy()
    given[masked] = 4
    tokens = TokenIds(flat=given, row_splits=np.array([0, len(ids)]), second_start=np.array([len(ids)], np.int32))
    return MaskedChunk(tokens=tokens, positions=positions, labels=labels, weights=weights, next_sentence=next_sentence)


def outputs_of(best, log_probability, pairs=None):
    kept = {"best": np.array([[*best, 0]], np.int32), "log_probability": np.array([[*log_probability, -50.0]])}
    return kept | ({} if pairs is None else {"next_sentence": np.array([pairs])})


def test_words_that_are_wrong_are_counted_by_hand():
    found = MaskedPredictions(TOKENIZER)
    ids = [2, 6, 7, 8, 6, 3]
    found.add(chunk_of(ids, [1, 3]), outputs_of([9, 8], [-1.0, -2.0]))
    found.add(chunk_of(ids, [1, 2, 4]), outputs_of([9, 7, 10], [-3.0, -1.0, -4.0]))
    assert found.metrics() == {"masked_accuracy": 2 / 5, "loss": 11 / 5, "perplexity": pytest.approx(np.exp(11 / 5))}
    (word,) = found.worst_words(5)
    assert word == {"word": "w6", "masked": 3, "wrong": 3}
    assert [record.error for record in found.kept] == [1.0, 7.0]
    shown = [("w6", "wrong", "w9"), (" w7", "", ""), ("w8", "answer", ""), (" w6 [SEP]", "", "")]  # ##w8 goes on.
    assert found.shown(found.kept[0]) == [dict(zip(("text", "mark", "instead"), part, strict=True)) for part in shown]


def test_pairs_add_to_the_loss():
    found = MaskedPredictions(TOKENIZER)
    found.add(chunk_of([2, 6, 3], [1], np.array([1])), outputs_of([6], [-1.0], [-0.1, -2.5]))
    metrics = found.metrics()
    assert metrics["next_sentence_accuracy"] == 0 and metrics["loss"] == 3.5
    assert (metrics["masked_lm_loss"], metrics["next_sentence_loss"]) == (1.0, 2.5)


def test_the_first_records_are_kept_alone(monkeypatch):
    monkeypatch.setattr(pretraining, "KEPT_RECORDS", 2)
    found = MaskedPredictions(TOKENIZER)
    for best in (9, 10, 9):
        found.add(chunk_of([2, 6, 3], [1]), outputs_of([best], [-1.0]))
    assert len(found.kept) == 2 and found.worst_words(1) == [{"word": "w6", "masked": 3, "wrong": 3}]


def test_predictions_that_are_not_finite_are_refused(records):
    found = MaskedPredictions(TOKENIZER)
    found.add(chunk_of([2, 6, 3], [1]), outputs_of([6], [np.nan]))
    with pytest.raises(RunError, match="1 of 1 are not"):
        Pretraining(next_sentence=False).metrics(found, records)


# Around it.


def test_data_of_a_run(tmp_path, records):
    train, dev = (write_records(tmp_path / n, some_records(c)) for n, c in (("a.tfrecord", 20), ("b.tfrecord", 7)))
    alone = write_records(tmp_path / "c.tfrecord", some_records(5, pairs=False))
    config = DataConfig(task="pretraining", max_train_examples=12)

    def load(*paths, **options):
        names = dict(zip(("train_records", "validation_records"), ((str(path),) for path in paths), strict=False))
        return load_data(config, TaskOptions(pretraining=PretrainingConfig(**names, **options), seed=3))

    data = load(train, dev)
    assert data.task.next_sentence and data.task.seed == 3
    assert {name: len(part) for name, part in data.sets.items()} == {"validation": 7, "validation_training": 7}
    sampled, trained = data.validation["validation_training"], data.train
    assert len(trained) == 12 and set(sampled.chosen) <= set(trained.chosen)
    assert not any("warning" in note for note in data.notes)
    assert not load(train, dev, next_sentence=False).task.next_sentence
    data.task.check_metric("next_sentence_accuracy")
    data = load(alone)
    assert not data.task.next_sentence and not data.sets
    assert any("no pairs" in note for note in data.notes)
    data = load(train, alone)  # Of these no evaluation says how next sentences do: nothing could be decided by that.
    assert data.task.next_sentence and any("c.tfrecord: no pairs" in note for note in data.notes)
    for metric in data.task.undefined_metrics:
        with pytest.raises(UsageError, match=f"must be a metric of.*: loss, masked_accuracy, perplexity. .*{metric}"):
            data.task.check_metric(metric)
    assert len(data.task.undefined_metrics) == 3


def test_records_and_lengths_must_fit(records):
    with pytest.raises(UsageError, match="Pass --max_seq_length=16"):
        Pretraining().encode(records, TOKENIZER, 8)
    with pytest.raises(UsageError, match="Records must use the model's vocabulary"):
        Pretraining().encode(records, BertTokenizer(TOKENIZER.vocab[:20]), 16)
    with pytest.raises(UsageError, match="max_predictions_per_seq must be at least"):
        Pretraining(options=PretrainingConfig(max_predictions_per_seq=1)).encode(records, TOKENIZER, 16)


def test_records_shorter_than_asked_are_warned_of(records, caplog):
    for length, training in ((16, TrainingConfig()), (32, None)):
        Pretraining().encode(records, TOKENIZER, length, training)
    assert not caplog.messages
    Pretraining().encode(records, TOKENIZER, 32, TrainingConfig())
    assert " has rows of 16 tokens, below max_seq_length=32: positions above learn nothing" in caplog.text


def test_report_shows_words_and_sentences(tmp_path, records):
    task, found = Pretraining(next_sentence=False), MaskedPredictions(TOKENIZER)
    found.add(chunk_of([2, 6, 7, 8, 6, 3], [1, 3]), outputs_of([9, 8], [-1.5, -2.0]))
    facts = json.loads(json.dumps(evaluation_facts(task, "validation", records, found)))
    assert (facts["num_wrong"], facts["worst"][0]["error"], facts["num_shown"]) == (1, 1.5, 1)
    run = make_run(tmp_path / "run")
    scores = {"eval_loss": 3.5, "eval_masked_accuracy": 0.25, "eval_next_sentence_accuracy": 0.5}
    (run / "log.jsonl").write_text(json.dumps({"step": 1, "kind": "eval", "time": "now", "epoch": 0.5} | scores))
    note(run, evaluation=facts)
    page = write_report(run).read_text()
    assert "Words most often wrong" in page and "Filled in" in page and "Evaluation: accuracies" in page
    assert page.count('<span class="wrong">w6 <s>w9</s></span>') == 2
    details, lines = task.details(found, records)
    assert details["worst_words"][0]["word"] == "w6" and lines == ["words most often wrong: w6: 1 of 1 wrong"]


def test_an_evaluation_holds_few_chunks_of_records(monkeypatch):
    alive, most = weakref.WeakSet(), []

    def chunks():
        for _ in range(200):
            alive.add(chunk := MaskedChunk(tokens=None, positions=None))
            most.append(len(alive))
            yield chunk

    class Encoded(types.SimpleNamespace):
        def __len__(self):
            return 200

    monkeypatch.setattr(MaskedPredictions, "add", lambda *_: None)
    predictor = types.SimpleNamespace(stream=lambda given, on_rows: ({} for _ in given))
    examples = Encoded(tokenizer=types.SimpleNamespace(pieces=(), shown_vocab=()), chunks=chunks)
    Pretraining.predict(None, predictor, examples, "dev")
    assert len(most) == 200 and max(most) <= 4
