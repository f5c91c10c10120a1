"""Multi-label classification: each text or pair of texts has any number of labels.

What is computed of the labels that texts have and get: metrics, through scikit-learn, on the host; from which
probability on a text gets a label, given or chosen on validation; and the loss. Logits are compared with the logit of
the threshold, in float32: here, in the graph of a served model and in transformers, whose limit for 0.5 is a logit of
0, the same labels are given to the bit.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfbert.batches.pipeline import EncodedExamples
from tfbert.config.data import DataConfig
from tfbert.config.tables import facts_of
from tfbert.config.tasks import MultiLabelConfig, TaskOptions
from tfbert.config.training import TrainingConfig
from tfbert.data.files import RawTable
from tfbert.errors import UsageError
from tfbert.model.files import OWN_FIELD, BertConfig
from tfbert.model.head import Head
from tfbert.tasks import classes, text_task
from tfbert.tasks.base import ErrorAnalysis, TaskData, Training
from tfbert.tasks.losses import HeadStart, Smoothed, asked_weights, base_rate
from tfbert.tasks.metrics import by_row, ratios
from tfbert.tasks.multi_label.table import SetReader
from tfbert.tasks.tables import read_labelled_tables
from tfbert.tokens.tokenizer import Tokenizer


def label_losses(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The mean binary cross-entropy over the labels of each row, in nats: float64 `[n]`.

    Args:
        logits: `[n, num_labels]`.
        labels: 0 or 1 `[n, num_labels]`.
    """
    return by_row(lambda some, own: (np.logaddexp(0, some) - own * some).mean(axis=1), np.asarray(logits), labels)


def multi_label_metrics(logits: np.ndarray, labels: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """The metrics of `MultiLabelClassification`.

    Args:
        logits: `[n, num_labels]`, finite.
        labels: 0 or 1 `[n, num_labels]`.
        predicted: bool `[n, num_labels]`: the labels that each row gets.
    """
    from sklearn import metrics

    labels, predicted = labels.astype(np.int64), predicted.astype(np.int64)
    some, both = labels.any(axis=0), labels.any(axis=0) & ~labels.all(axis=0)
    values = {
        # A row without labels that gets none is right.
        "sample_f1": metrics.f1_score(labels, predicted, average="samples", zero_division=1),
        "subset_accuracy": metrics.accuracy_score(labels, predicted),
        "roc_auc": _mean(metrics.roc_auc_score, labels, logits, both),
        "average_precision": _mean(metrics.average_precision_score, labels, logits, some),
        "loss": label_losses(logits, labels).mean(),
    }
    for average in ("micro", "macro"):
        found = metrics.precision_recall_fscore_support(labels, predicted, average=average, zero_division=0)
        values |= zip((f"{average}_precision", f"{average}_recall", f"{average}_f1"), found[:3], strict=True)
    return {name: float(values[name]) for name in facts_of("multi_label_classification").metrics}


def _mean(score: Any, labels: np.ndarray, logits: np.ndarray, counts: np.ndarray) -> float:
    """The mean of a score over the labels that count; 0 for no labels."""
    columns = np.flatnonzero(counts)
    return float(np.mean([score(labels[:, i], logits[:, i]) for i in columns])) if len(columns) else 0.0


def left_out(labels: np.ndarray, label_names: Sequence[str]) -> dict[str, list[str]]:
    """The labels that the means of two metrics leave out, by the metric: ROC AUC is not defined for a label that all
    rows have, or none; average precision for one that none has."""
    all_rows, no_row = labels.all(axis=0), ~labels.any(axis=0)
    names = np.array(label_names, object)
    return {"roc_auc": names[all_rows | no_row].tolist(), "average_precision": names[no_row].tolist()}


def per_label(
    logits: np.ndarray,
    labels: np.ndarray,
    predicted: np.ndarray,
    label_names: Sequence[str],
    thresholds: Sequence[float],
) -> dict[str, dict[str, float | None]]:
    """By label name: `precision`, `recall` and `f1`, 0 where they are undefined; `roc_auc` and `average_precision`,
    None where they are; `threshold`; `examples`, the rows that have the label, and `predicted`, those that get it."""
    from sklearn import metrics

    labels, predicted = labels.astype(bool), predicted.astype(bool)
    hits, having, getting = (labels & predicted).sum(axis=0), labels.sum(axis=0), predicted.sum(axis=0)
    found: dict[str, dict[str, float | None]] = {}
    for i, name in enumerate(label_names):
        own, scores = labels[:, i], logits[:, i]
        found[name] = ratios(hits[i], getting[i], having[i]) | {
            "roc_auc": float(metrics.roc_auc_score(own, scores)) if 0 < having[i] < len(own) else None,
            "average_precision": float(metrics.average_precision_score(own, scores)) if having[i] else None,
            "threshold": thresholds[i if len(thresholds) > 1 else 0],
            "examples": int(having[i]),
            "predicted": int(getting[i]),
        }
    return found


def label_table(table: dict[str, dict[str, float | None]]) -> list[str]:
    """The table of the labels as lines for the screen."""
    width = max(len("label"), *map(len, table))
    lines = [f"{'label':{width}}  precision  recall      f1  roc auc  threshold  examples  predicted"]
    for name, row in table.items():
        auc = "      –" if row["roc_auc"] is None else f"{row['roc_auc']:7.4f}"
        numbers = f"{row['precision']:9.4f}  {row['recall']:6.4f}  {row['f1']:6.4f}  {auc}"
        lines.append(f"{name:{width}}  {numbers}  {row['threshold']:9.2f}  {row['examples']:8,}  {row['predicted']:9,}")
    return lines


def threshold_curve(logits: np.ndarray, labels: np.ndarray) -> dict[str, list[float]]:
    """Micro F1, macro F1, micro precision and micro recall by one threshold for all labels."""
    labels = labels.astype(bool)
    curve: dict[str, list[float]] = {"threshold": _CURVE.tolist()}
    for threshold in _CURVE:
        predicted = given_labels(logits, [threshold])
        hits = (predicted & labels).sum()
        values = {
            "micro F1": _f1(predicted, labels, "micro_f1"),
            "macro F1": _f1(predicted, labels, _BY_LABEL),
            "micro precision": hits / max(predicted.sum(), 1),
            "micro recall": hits / max(labels.sum(), 1),
        }
        for name, value in values.items():
            curve.setdefault(name, []).append(round(float(value), 5))
    return curve


CANDIDATES = np.arange(1, 100) / 100
"""The thresholds that are tried. A finer choice would fit the rows of the validation set."""
_CURVE = CANDIDATES[1::2]
DEFAULT = 0.5
_BY_LABEL, _BY_ROW = "macro_f1", "sample_f1"


def cutoffs(thresholds: Sequence[float] | np.ndarray) -> np.ndarray:
    """The logits that a label's must exceed: float32, as many as thresholds."""
    values = np.asarray(thresholds, np.float64)
    return np.log(values / (1 - values)).astype(np.float32)


def given_labels(logits: np.ndarray, thresholds: Sequence[float]) -> np.ndarray:
    """Which labels texts get: bool `[n, num_labels]`.

    Args:
        logits: float32 `[n, num_labels]`.
        thresholds: One for all labels, or one for each.
    """
    return np.asarray(logits, np.float32) > cutoffs(thresholds)


def choose_threshold(logits: np.ndarray, labels: np.ndarray, metric: str) -> float:
    """The threshold for all labels by which F1 is best; of equal ones that nearest to 0.5, then the lower.

    Args:
        logits: float32 `[n, num_labels]`.
        labels: 0 or 1 `[n, num_labels]`.
        metric: The F1 is the macro or the sample one where this is its name, else the micro one.
    """
    return _best(_f1(logits > cutoff, labels.astype(bool), metric) for cutoff in cutoffs(CANDIDATES))


def choose_thresholds(logits: np.ndarray, labels: np.ndarray) -> tuple[float, ...]:
    """For each label the threshold by which its own F1 is best, chosen likewise; 0.5 for a label that no text has.

    Args:
        logits: float32 `[n, num_labels]`.
        labels: 0 or 1 `[n, num_labels]`.
    """
    scores = np.stack([_f1_of_labels(logits > cutoff, labels.astype(bool)) for cutoff in cutoffs(CANDIDATES)], axis=1)
    return tuple(_best(own) if some else DEFAULT for own, some in zip(scores, labels.any(axis=0), strict=True))


def _best(scores: Iterable[float]) -> float:
    """The candidate with the best score."""
    scores = np.array([*scores])
    equal = np.flatnonzero(scores == scores.max())
    return float(CANDIDATES[min(equal, key=lambda place: (round(abs(CANDIDATES[place] - DEFAULT), 6), place))])


def _f1(predicted: np.ndarray, labels: np.ndarray, metric: str) -> float:
    if metric == _BY_LABEL:
        return float(_f1_of_labels(predicted, labels).mean())
    if metric == _BY_ROW:
        hits, sizes = (predicted & labels).sum(axis=1), predicted.sum(axis=1) + labels.sum(axis=1)
        return float(np.where(sizes > 0, 2 * hits / np.maximum(sizes, 1), 1.0).mean())
    return float(2 * (predicted & labels).sum() / max(predicted.sum() + labels.sum(), 1))


def _f1_of_labels(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    hits, sizes = (predicted & labels).sum(axis=0), predicted.sum(axis=0) + labels.sum(axis=0)
    return 2 * hits / np.maximum(sizes, 1)


def positive_weights(training: TrainingConfig | None, labels: np.ndarray) -> np.ndarray:
    """The weight of each label in the texts that have it; in the others it weighs 1.

    `balanced` is the number of texts without the label over the number of those with it, each at least 1, so that both
    weigh the same in all.

    Args:
        training: Its `class_weights` is read; None: 1 each.
        labels: 0 or 1 `[n, num_labels]`, those of the training data.

    Returns:
        float32 `[num_labels]`, above 0.

    Raises:
        UsageError: if the number of weights is not the number of labels.
    """
    having = labels.sum(axis=0, dtype=np.int64)
    return asked_weights(training, np.maximum(len(labels) - having, 1) / np.maximum(having, 1), "labels")


class MeanBinaryCrossEntropy(Smoothed):
    """The mean over a row's labels of the binary cross-entropy of their logits.

    Without weights and smoothing it is PyTorch's `BCEWithLogitsLoss` of a row; with weights alone, that with
    `pos_weight`. With smoothing the target of a label is `1 - label_smoothing / 2` where the row has it and
    `label_smoothing / 2` where not, and the weight is that of the whole term.
    """

    def call(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """float32 `[rows]` from float32 `[rows, num_labels]`: the weight of each label that a row has, 0 for each that
        it has not; and logits `[rows, num_labels]`."""
        logits = tf.convert_to_tensor(logits)
        labels = tf.cast(labels, logits.dtype)
        has = labels > 0
        smoothing = tf.constant(self.label_smoothing, logits.dtype)
        targets = tf.where(has, 1 - smoothing / 2, smoothing / 2)
        terms = tf.nn.sigmoid_cross_entropy_with_logits(targets, logits)
        return tf.reduce_mean(tf.where(has, labels, 1) * terms, axis=-1)


_NOTED = "label_threshold"
_SEPARATOR = "|"
_SHOWN_SEPARATOR = ", "


@dataclasses.dataclass(frozen=True)
class MultiLabelClassification(text_task.TextTask):
    """See `Task`. Labels are int8 `[n, num_labels]`, 0 or 1; outputs logits.

    Metrics: micro, macro and sample F1, micro and macro precision and recall; `subset_accuracy`, the share of texts
    that get exactly their labels; `roc_auc` and `average_precision`, means over the labels for which they are defined
    (not those that all texts have or, in both, none), and 0 where that is none; `loss`, the mean over texts of the mean
    over labels of the binary cross-entropy in nats, without label smoothing or class weights. Macro scores count labels
    that no text has, or gets, as 0, as scikit-learn does; sample F1 counts a text without labels that gets none as 1.

    Attributes:
        thresholds: A text gets the labels whose probability is above these: one for all labels, or one for each.
        asked: How data to evaluate on is read, what predictions give, and how validation decides about thresholds.
    """

    label_names: tuple[str, ...]
    thresholds: tuple[float, ...] = (DEFAULT,)
    asked: MultiLabelConfig = MultiLabelConfig()

    name = "multi_label_classification"
    pipeline_tag = "text-classification"
    label_word = "labels"

    @classmethod
    def of_model(cls, saved: BertConfig, directory: pathlib.Path, options: TaskOptions) -> MultiLabelClassification:
        """The task of a saved model."""
        asked, names = options.multi_label, classes.names_of_model(saved, directory)
        if asked.chooses_threshold:
            rule = "The threshold of a saved model is its own, or a number"
            received = f"label_threshold={asked.label_threshold!r}, which training chooses"
            raise UsageError(f"{rule}. Received: {received}. Pass a number, or drop it.")
        noted = (getattr(saved, OWN_FIELD, None) or {}).get(_NOTED, DEFAULT)
        thresholds = tuple(noted) if isinstance(noted, list) else (noted,)
        are_known = all(type(value) in (int, float) and 0 < value < 1 for value in thresholds)
        if not are_known or len(thresholds) not in (1, len(names)):
            rule = f"A model's {_NOTED} is a probability, or one for each label"
            raise UsageError(f"{rule}. Received: {noted!r:.80} in {directory / 'config.json'}. Repair it.")
        return cls(names, tuple(map(float, thresholds)) if asked.threshold is None else (asked.threshold,), asked)

    @property
    def kind(self) -> str:
        return f"multi-label classification with {len(self.label_names)} labels"

    def notes(self) -> dict[str, Any]:
        """What a saved model must record besides its labels: the thresholds."""
        return {_NOTED: self.thresholds[0] if len(self.thresholds) == 1 else list(self.thresholds)}

    def tuned(self, predictions: np.ndarray, examples: text_task.TextExamples, metric: str) -> MultiLabelClassification:
        """The task with the thresholds by which F1 is best, where they are to be chosen."""
        if not self.asked.chooses_threshold:
            return self
        if self.asked.label_threshold == "auto":
            return dataclasses.replace(self, thresholds=(choose_threshold(predictions, examples.labels, metric),))
        return dataclasses.replace(self, thresholds=choose_thresholds(predictions, examples.labels))

    # Examples.

    def labels(self, table: RawTable) -> np.ndarray:
        # Of rows that say of each label whether they have it: one that is missing would count as one that no row has.
        missing = [label for label in self.label_names if label not in (table.label_names or ())]
        if missing and table.has_all:
            rule = f"Data must have each of the {len(self.label_names)} labels"
            received = f"{table.name} without {classes.shortened(missing, 5)}"
            raise UsageError(f"{rule}. Received: {received}. Pass data whose rows say of each whether they have it.")
        labels = np.zeros((len(table), len(self.label_names)), np.int8)
        rows = [row for row, own in enumerate(table.labels) for _ in own]
        written = [label for own in table.labels for label in own]
        labels[rows, classes.class_ids(written, self.label_names, lambda place: table.where(rows[place]))] = 1
        return labels

    def tables(self, config: DataConfig, notes: list[str]) -> dict[str, RawTable]:
        read = SetReader(config, self.asked.label_separator, self.label_names)
        return read_labelled_tables(config, self.name, read, notes)

    def strata(self, examples: text_task.TextExamples) -> np.ndarray:
        """For each text, which of its labels the fewest texts have: int64 `[n]`; the number of labels for one without
        any."""
        labels = examples.labels
        own = np.where(labels > 0, labels.sum(axis=0, dtype=np.int64), len(labels) + 1)
        return np.where(labels.any(axis=1), own.argmin(axis=1), labels.shape[1])

    def about_labels(self, examples: text_task.TextExamples) -> list[str]:
        names = left_out(examples.labels, self.label_names)["roc_auc"]
        shown = ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
        what = f"{len(names)} of {len(self.label_names)} labels that all texts have, or none"
        return [f"{examples.name}: {what}, are left out of roc_auc: {shown}"] if names else []

    def doubts(self, examples: text_task.TextExamples) -> list[str]:
        """Labels whose names are almost the same, that hardly any text has, or all have; texts without any."""
        counts = examples.labels.sum(axis=0, dtype=np.int64).tolist()
        out = classes.doubts_of(self.label_names, counts, "labels")
        if everywhere := [name for name, n in zip(self.label_names, counts, strict=True) if n == len(examples)]:
            out.append(f"labels that every training example has: {', '.join(map(repr, everywhere[:5]))}")
        if (examples.labels.sum(axis=1) == 1).all():
            out.append(
                "every training example has exactly one label; if all texts have, write its name alone in a column: "
                "--task=classification predicts one of them"
            )
        return out

    # The model and its training.

    def head(self) -> Head:
        return Head(labels=self.label_names, has_names=True, problem_type=self.name)

    def head_start(self, encoded: EncodedExamples, training: TrainingConfig) -> HeadStart:
        bias = base_rate(
            encoded.labels,
            "multi_label_classification",
            sample_weight=encoded.weights,
            label_smoothing=training.label_smoothing,
        )
        return HeadStart(bias=bias, words=f"the base rate of {len(bias)} labels")

    def loss(self, training: TrainingConfig) -> MeanBinaryCrossEntropy:
        return MeanBinaryCrossEntropy(training.label_smoothing)

    def encode(
        self, examples: text_task.TextExamples, tokenizer: Tokenizer, max_seq_length: int, training: Training = None
    ) -> EncodedExamples:
        """See `Task`; the label of an encoded example is its weight where the example has it."""
        encoded = super().encode(examples, tokenizer, max_seq_length, training)
        if examples.labels is None:
            return encoded
        return dataclasses.replace(encoded, labels=examples.labels * positive_weights(training, examples.labels))

    # Predictions.

    def _metrics(self, predictions: np.ndarray, examples: text_task.TextExamples) -> dict[str, float]:
        predicted = given_labels(predictions, self.thresholds)
        found = multi_label_metrics(predictions, examples.labels, predicted)
        return found | ({"threshold": self.thresholds[0]} if self.asked.label_threshold == "auto" else {})

    def remarks(self, predictions: np.ndarray, examples: text_task.TextExamples) -> list[str]:
        if given_labels(predictions, self.thresholds).any() or not examples.labels.any():
            return []
        return [
            f"{examples.name}: none of {len(examples):,} texts gets a label, no probability is above its threshold ("
            f"the highest is {self.shares(predictions).max():.2g}): train longer, or with --label_threshold=auto, "
            "which chooses the threshold on the validation set"
        ]

    def details(self, predictions: np.ndarray, examples: text_task.TextExamples) -> tuple[dict[str, Any], list[str]]:
        table = self._per_label(predictions, examples)
        return {"per_label": table, "left_out": left_out(examples.labels, self.label_names)}, label_table(table)

    def _per_label(
        self, predictions: np.ndarray, examples: text_task.TextExamples
    ) -> dict[str, dict[str, float | None]]:
        predicted = given_labels(predictions, self.thresholds)
        return per_label(predictions, examples.labels, predicted, self.label_names, self.thresholds)

    def error_analysis(self, predictions: np.ndarray, examples: text_task.TextExamples) -> ErrorAnalysis:
        """The error is the loss of a text that does not get exactly its labels."""
        labels, predicted = examples.labels.astype(bool), given_labels(predictions, self.thresholds)
        scores, losses = self.shares(predictions), label_losses(predictions, examples.labels)
        found = [
            _SHOWN_SEPARATOR.join(f"{self.label_names[i]} ({scores[row, i]:.2f})" for i in np.flatnonzero(given))
            for row, given in enumerate(predicted)
        ]
        right = [_SHOWN_SEPARATOR.join(self.label_names[i] for i in np.flatnonzero(own)) for own in labels]
        shown = functools.partial(text_task.shown_text, examples, right, found)
        facts = {
            "per_label": self._per_label(predictions, examples),
            "thresholds": list(self.thresholds),
            "threshold_choice": self.asked.label_threshold if self.asked.chooses_threshold else "",
            "threshold_curve": threshold_curve(predictions, examples.labels),
        }
        errors = np.where((labels != predicted).any(axis=1), losses, 0.0)
        return ErrorAnalysis(errors=errors, measure="loss", shown=shown, facts=facts)

    def columns(self) -> list[str]:
        if self.asked.column_per_label:
            return list(self.label_names)
        if ambiguous := [name for name in self.label_names if _SEPARATOR in name]:
            rule = f"A table separates labels by {_SEPARATOR!r}, which must be in no label"
            received = f"the label {classes.quoted(ambiguous[0])}"
            raise UsageError(f"{rule}. Received: {received}. Write .jsonl, or add --column_per_label.")
        return ["labels", "scores"]

    def cells(self, record: dict[str, Any]) -> list[Any]:
        if self.asked.column_per_label:
            return [*record["probabilities"].values()]
        return [_SEPARATOR.join(record["labels"]), _SEPARATOR.join(f"{score:.7g}" for score in record["scores"])]

    def records(self, outputs: np.ndarray) -> Iterator[dict[str, Any]]:
        every = self.entries(outputs, self.asked.top_k) if self.asked.top_k else self.best(outputs)
        for row, given in zip(self.shares(outputs), every, strict=True):
            found = {"labels": [entry["label"] for entry in given], "scores": [entry["score"] for entry in given]}
            if self.asked.column_per_label:
                found["probabilities"] = dict(zip(self.label_names, row, strict=True))
            yield found

    def shares(self, outputs: np.ndarray) -> np.ndarray:
        from scipy.special import expit

        return expit(np.asarray(outputs, np.float32))

    def best(self, outputs: np.ndarray) -> Iterator[list[dict[str, Any]]]:
        """The labels above their thresholds, the most probable first."""
        counts = given_labels(outputs, self.thresholds)
        for given, own in zip(counts, self.entries(outputs, None), strict=True):
            names = {self.label_names[place] for place in np.flatnonzero(given)}
            yield [entry for entry in own if entry["label"] in names]

    def answers(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """`labels`, string `[n, num_labels]`: those that a text gets, the most probable first, then empty ones."""
        is_given = outputs > tf.constant(cutoffs(self.thresholds))
        # Those that are not given come last, whatever their logits: thresholds may differ.
        order = tf.argsort(tf.where(is_given, outputs, -float("inf")), axis=1, direction="DESCENDING", stable=True)
        names = tf.gather(tf.constant(self.label_names), order)
        labels = tf.where(tf.gather(is_given, order, batch_dims=1), names, "")
        return {"logits": outputs, "probabilities": tf.sigmoid(outputs), "is_given": is_given, "labels": labels}

    def card(self, num_texts: int) -> str:
        how = (
            f"above {self.thresholds[0]:g}"
            if len(self.thresholds) == 1
            else "above its own threshold (`tfbert.label_threshold` in `config.json`)"
        )
        return (
            f"gives {text_task.takes(num_texts)} any number of {len(self.label_names)} labels: each whose probability, "
            f"the sigmoid of its logit, is {how}"
        )


def load_label_sets(config: DataConfig, options: TaskOptions) -> TaskData:
    """Reads texts with several labels each."""
    asked = options.multi_label

    def choose(train: RawTable, notes: list[str]) -> MultiLabelClassification:
        return MultiLabelClassification(_names(train), (asked.threshold or DEFAULT,), asked)

    data = text_task.load_texts(config, MultiLabelClassification.name, SetReader(config, asked.label_separator), choose)
    if asked.chooses_threshold and not data.validation:
        rule = f"label_threshold={asked.label_threshold} is chosen on validation examples"
        raise UsageError(f"{rule}. Received: none. Pass --validation_file or --validation_split, or a number.")
    parts = ((part, int((~part.labels.any(axis=1)).sum())) for part in (data.train, *data.sets.values()))
    bare = (f"{part.name}: {count:,} of {len(part):,} texts have no label" for part, count in parts if count)
    return dataclasses.replace(data, notes=(*data.notes, *bare))


def _names(train: RawTable) -> tuple[str, ...]:
    """The labels: those that the data set or the user defines, or else those that occur, numbers ordered by value and
    words by alphabet.

    Raises:
        UsageError: for labels that do not look like labels, or fewer than two.
    """
    found = classes.in_order(classes.distinct_labels(train.labels))
    names = found if train.label_names is None else train.label_names
    if len(names) < 2 or not found:
        rule = "Multi-label classification needs at least two labels, and a text that has one"
        received = f"{'only ' + classes.shortened(found) if found else 'no label'} in {train.name}"
        todo = "Check the file and --label_column; one label or none is --task=classification."
        raise UsageError(f"{rule}. Received: {received}. {todo}")
    classes.check_few(train, found, " and --label_separator")
    return names
