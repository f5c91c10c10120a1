"""Predictions of masked words: which results leave the device, and the metrics over all of them.

The logits of one evaluation would fill any memory. Only two numbers per masked position leave the device, and only
sums of them, counts of words and the first records are kept.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from tfbert.batches.inputs import INPUTS, padded_inputs
from tfbert.batches.masked_records import MASKED_LM, NEXT_SENTENCE, POSITIONS, MaskedChunk
from tfbert.batches.plan import FILL
from tfbert.tokens.tokenizer import TokenIds, Tokenizer

LABELS = "masked_lm_ids"
"""The input with the words at the masked places; a model gets it only for evaluation."""
MOST_CANDIDATES = 100
"""The most words that a user can request for a masked place."""
KEPT_RECORDS = 512
"""How many records of an evaluation are kept, the first ones, so that a report can show them."""
_KEPT_MISTAKES = 1 << 19
"""How many kinds of mistakes (one word taken for another) are counted; beyond that, the rare ones are dropped."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MaskedRows:
    """Rows with masked words to be predicted, see `predictor.Rows`.

    Attributes:
        tokens: The model's input.
        positions: int32 `[n, most]`: the masked places of each row; 0 after the last one.
        labels: int32 `[n, most]`: the words at these places; None if they are not known.
    """

    tokens: TokenIds
    positions: np.ndarray
    labels: np.ndarray | None = None

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of what `inputs` returns."""
        return (*INPUTS, POSITIONS) if self.labels is None else (*INPUTS, POSITIONS, LABELS)

    @property
    def lengths(self) -> np.ndarray:
        """int32 `[n]`: tokens of each row."""
        return self.tokens.lengths

    def __len__(self) -> int:
        return len(self.tokens)

    def inputs(self, rows: np.ndarray, width: int) -> dict[str, np.ndarray]:
        """A batch's inputs."""
        others = {POSITIONS: self.positions} | ({} if self.labels is None else {LABELS: self.labels})
        is_real = (rows != FILL)[:, None]  # Places of other rows may lie beyond the width.
        given = {name: np.where(is_real, array[rows], 0) for name, array in others.items()}
        return padded_inputs(self.tokens, rows, width) | given


def scored(outputs: dict[str, tf.Tensor], labels: tf.Tensor) -> dict[str, tf.Tensor]:
    """The part of the outputs that is kept if labels are known, computed in the graph.

    Args:
        outputs: Of `forward_pretraining`, float32.
        labels: int32 `[rows, predictions]`.

    Returns:
        `log_probability` of each label, float32, and the `best` word, int32, both `[rows, predictions]`; and the log
        probabilities of `next_sentence`, float32 `[rows, 2]`, if the model has that output.
    """
    logits = outputs[MASKED_LM]
    kept = {
        "log_probability": -tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits),
        "best": tf.argmax(logits, axis=-1, output_type=tf.int32),
    }
    if NEXT_SENTENCE in outputs:
        kept[NEXT_SENTENCE] = tf.nn.log_softmax(outputs[NEXT_SENTENCE])
    return kept


def candidates(outputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The best words of masked places, best first, in the graph: their probabilities as `score`, float32, and ids as
    `token`, int32, both `[rows, predictions, words]`."""
    logits = outputs[MASKED_LM]
    best, ids = tf.math.top_k(logits, k=min(MOST_CANDIDATES, logits.shape[-1]))
    return {"score": tf.exp(best - tf.reduce_logsumexp(logits, axis=-1, keepdims=True)), "token": ids}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class KeptRecord:
    """A record that was predicted.

    Attributes:
        ids: int32 `[length]`, before masking.
        positions: int32 `[masked]`: the places that were masked.
        best: int32 `[masked]`: the words that the model predicts there.
        log_probability: float32 `[masked]`: of the right words.
    """

    ids: np.ndarray
    positions: np.ndarray
    best: np.ndarray
    log_probability: np.ndarray

    @property
    def error(self) -> float:
        """The sum of the losses of its wrongly predicted words."""
        return float(-self.log_probability[self.best != self.ids[self.positions]].sum(dtype=np.float64))


class MaskedPredictions:
    """Predictions of any number of records, in memory of a fixed size, plus one number per chunk of records.

    Args:
        tokenizer: The model's.

    Attributes:
        num_words: Masked words so far, of weight above 0.
        right_words: How many of them are predicted right.
        word_losses: float64, for each chunk, the sum of their cross-entropies.
        num_pairs: Records so far that say whether their second text follows.
        right_pairs: How many of them are predicted right.
        pair_losses: float64, for each chunk, the sum of their cross-entropies.
        masked: int64 [vocab]: how often each word was masked.
        wrong: int64 [vocab]: how often it was predicted wrong.
        kept: The first records.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._pieces, self.vocab = tokenizer.pieces, tokenizer.shown_vocab
        self.num_words = self.right_words = self.num_pairs = self.right_pairs = 0
        self.word_losses: list[float] = []
        self.pair_losses: list[float] = []
        self.masked, self.wrong = np.zeros((2, len(self.vocab)), np.int64)
        self.kept: list[KeptRecord] = []
        self._mistakes, self._times = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def add(self, chunk: MaskedChunk, outputs: dict[str, np.ndarray]) -> None:
        """Counts some records.

        Args:
            chunk: The records.
            outputs: What `scored` keeps of them.
        """
        counts = chunk.weights > 0
        labels, best = chunk.labels[counts], outputs["best"][counts]
        is_wrong = labels != best
        self.num_words += len(labels)
        self.right_words += int((~is_wrong).sum())
        self.word_losses.append(float(-outputs["log_probability"][counts].sum(dtype=np.float64)))
        self.masked += np.bincount(labels, minlength=len(self.vocab))
        self.wrong += np.bincount(labels[is_wrong], minlength=len(self.vocab))
        self._count_mistakes(labels[is_wrong], best[is_wrong])
        if chunk.next_sentence is not None:
            chances, answers = outputs[NEXT_SENTENCE], chunk.next_sentence
            self.num_pairs += len(answers)
            self.right_pairs += int((chances.argmax(axis=1) == answers).sum())
            self.pair_losses.append(float(-chances[np.arange(len(answers)), answers].sum(dtype=np.float64)))
        for row in range(min(len(chunk.tokens), KEPT_RECORDS - len(self.kept))):
            self.kept.append(_kept(chunk, outputs, row))

    def metrics(self) -> dict[str, float]:
        """`masked_accuracy`, `loss`, `perplexity`; if there are pairs, also `next_sentence_accuracy` and the two parts
        of the loss. Losses are means in nats; `loss` is the sum of its parts, as in training."""
        masked_loss = sum(self.word_losses) / max(self.num_words, 1)
        found = {
            "masked_accuracy": self.right_words / max(self.num_words, 1),
            "loss": masked_loss,
            "perplexity": float(np.exp(min(masked_loss, 700.0))),  # Finite, as JSON wants it.
        }
        if self.num_pairs:
            pair_loss = sum(self.pair_losses) / self.num_pairs
            found["loss"] += pair_loss
            found["next_sentence_accuracy"] = self.right_pairs / self.num_pairs
            found |= {"masked_lm_loss": masked_loss, "next_sentence_loss": pair_loss}
        return found

    def worst_words(self, most: int) -> list[dict[str, Any]]:
        """The words that are most often predicted wrong, as JSON can hold them: `word`, how often it was `masked` and
        `wrong`, and what it was most often taken for, `instead`, and how often, `times`."""
        taken_for = self._taken_for()
        found = []
        for word in np.argsort(-self.wrong, kind="stable")[:most].tolist():
            if not self.wrong[word]:
                break
            instead, times = taken_for.get(word, (None, 0))
            found.append(
                {
                    "word": self.vocab[word],
                    "masked": int(self.masked[word]),
                    "wrong": int(self.wrong[word]),
                    "instead": None if instead is None else self.vocab[instead],
                    "times": times,
                }
            )
        return found

    def shown(self, record: KeptRecord) -> list[dict[str, str]]:
        """A record in readable form: its text in parts. Masked parts are marked: `answer` where the model is right,
        `wrong` where it is not, with what it predicts as `instead`."""
        guesses = dict(zip(record.positions.tolist(), record.best.tolist(), strict=True))
        parts: list[dict[str, str]] = []
        for place, token in enumerate(record.ids.tolist()):
            if place == 0:  # [CLS]
                continue
            text = self._pieces[token]
            text = text if place > 1 else text.removeprefix(" ")
            guess = guesses.get(place)
            mark = "" if guess is None else "answer" if guess == token else "wrong"
            if parts and not mark and not parts[-1]["mark"]:
                parts[-1]["text"] += text
            else:
                parts.append({"text": text, "mark": mark, "instead": self.vocab[guess] if mark == "wrong" else ""})
        for part in parts:  # Bytes of a character that are together by now.
            part["text"] = part["text"].encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return parts

    def _count_mistakes(self, labels: np.ndarray, best: np.ndarray) -> None:
        kinds = labels.astype(np.int64) * len(self.vocab) + best
        kinds = np.concatenate([self._mistakes, kinds])
        times = np.concatenate([self._times, np.ones(len(labels), np.int64)])
        self._mistakes, where = np.unique(kinds, return_inverse=True)
        self._times = np.bincount(where, times, minlength=len(self._mistakes)).astype(np.int64)
        if len(self._mistakes) > _KEPT_MISTAKES:
            common = np.sort(np.argsort(-self._times, kind="stable")[:_KEPT_MISTAKES])
            self._mistakes, self._times = self._mistakes[common], self._times[common]

    def _taken_for(self) -> dict[int, tuple[int, int]]:
        """For each word, the word it was most often taken for, and how often."""
        words, others = np.divmod(self._mistakes, len(self.vocab))
        order = np.lexsort((-self._times, words))
        first = order[np.unique(words[order], return_index=True)[1]]
        return {int(words[i]): (int(others[i]), int(self._times[i])) for i in first}


def _kept(chunk: MaskedChunk, outputs: dict[str, np.ndarray], row: int) -> KeptRecord:
    tokens, counts = chunk.tokens, chunk.weights[row] > 0
    ids, positions = (
        tokens.flat[tokens.row_splits[row] : tokens.row_splits[row + 1]].copy(),
        chunk.positions[row][counts],
    )
    ids[positions] = chunk.labels[row][counts]
    best, log_probability = (outputs[name][row][counts] for name in ("best", "log_probability"))
    return KeptRecord(ids=ids, positions=positions, best=best, log_probability=log_probability)
