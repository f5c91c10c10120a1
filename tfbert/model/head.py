"""What a task needs above an encoder: new weights, what computes them, and the fields of `config.json` that describe
them; the heads of pre-training: the word at a masked position, and whether segment B follows segment A. And a model's
files -> the weights of a model with a task's head, and back to files."""

from __future__ import annotations

import dataclasses
import json
import logging
import pathlib
import shutil
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tfbert.errors import RunError, UsageError, first_line
from tfbert.model import weights
from tfbert.model.encoders.bert import WORDS
from tfbert.model.forward import forward, forward_choices, forward_pretraining, forward_spans, forward_tokens
from tfbert.model.layout import shapes_of
from tfbert.model.weights import Stored, list_names

if TYPE_CHECKING:
    from tfbert.model.files import BertConfig
    from tfbert.tokens.tokenizer import Tokenizer


log = logging.getLogger("tfbert")

_FORWARD = {
    "SequenceClassification": forward,
    "TokenClassification": forward_tokens,
    "QuestionAnswering": forward_spans,
    "MultipleChoice": forward_choices,
    **dict.fromkeys(WORDS, forward_pretraining),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Head:
    """What stands above an encoder: a row of weights for each label; or the two heads of `BertForPreTraining`, or the
    one of `...ForMaskedLM`, whose decoder is the word embeddings.

    Attributes:
        kind: The kind of model: see `encoders.bert.Bert`.
        labels: A name for each output; of words transformers' default, as there are no labels.
        has_names: Whether the names mean something: a file's head is then put in their order, or left out if it has
            other names.
        problem_type: transformers' word for the loss; None where it has none.
    """

    kind: str = "SequenceClassification"
    labels: tuple[str, ...] = ("LABEL_0", "LABEL_1")
    has_names: bool = False
    problem_type: str | None = None

    @property
    def forward(self) -> Callable[..., Any]:
        """Computes model and head over a batch's inputs: see `forward.forward`."""
        return _FORWARD[self.kind]

    def names(self, config: BertConfig) -> tuple[str, str]:
        """The names in PyTorch of the weight and the bias of its labels or words."""
        layer = config.encoder.VOCABULARY if self.kind in WORDS else config.encoder.OUTPUTS[self.kind]
        return f"{layer}.weight", f"{layer}.bias"

    def second_names(self, config: BertConfig) -> tuple[str, ...]:
        """Names under which files hold some weights a second time: the decoder's, which are the table and the bias."""
        words = config.encoder.VOCABULARY
        return (f"{words}.decoder.weight", f"{words}.weight", f"{words}.decoder.bias") if self.kind in WORDS else ()

    def describe_in(self, config: BertConfig) -> None:
        """Describes the head in a model's configuration."""
        config.id2label = dict(enumerate(self.labels))  # num_labels follows from it.
        config.label2id = {label: i for i, label in enumerate(self.labels)}
        config.problem_type = self.problem_type
        if self.kind in WORDS:
            config.tie_word_embeddings = True

    def read(self, stored: Mapping[str, Stored], saved: BertConfig) -> tuple[dict[str, np.ndarray], str]:
        """A file's weights of this head, in the order of the task's labels, as far as they mean the same here.

        Args:
            stored: The file's weights, in shapes that fit.
            saved: The file's configuration.

        Returns:
            The weights, and why some were left out; empty if none were, or the file has none.
        """
        if self.kind in WORDS:
            return self._read_words(stored, saved)
        own = self.names(saved)
        parts = shapes_of(saved.encoder.head(saved, self.kind, len(self.labels)))
        inner = {name: stored[name].read() for name in parts if name in stored and name not in own}
        if not all(name in stored for name in own):
            return inner, ""
        rows = stored[own[1]].shape[0]
        owners, labels = saved.architectures or [self.kind], list(self.labels)
        order = list(range(rows)) if rows == len(labels) else []
        names = [saved.id2label.get(i, "") for i in order]
        unnamed = names == [f"LABEL_{i}" for i in order] or saved.num_labels != rows
        places = {name.casefold(): row for row, name in enumerate(names)}
        wanted = [label.casefold() for label in labels]
        if not any(owner.endswith(self.kind) for owner in owners):
            return inner, f"the file's head is that of {owners[0]}"
        if rows != len(labels):
            return inner, f"the file's head has {rows} labels, this task {len(labels)}"
        if not self.has_names or names == labels:
            pass
        elif sorted(places) == sorted(wanted) and len(places) == rows:
            order = [places[label] for label in wanted]
            log.info("The head's labels (%s) are put in the data's order: %s.", ", ".join(names), ", ".join(labels))
        elif unnamed:
            log.info("The file does not name its head's labels; these are assumed, in order: %s.", ", ".join(labels))
        else:
            return inner, f"the file's head is for other labels: {list_names(names)}"
        return inner | {name: stored[name].read()[order] for name in own}, ""

    def _read_words(self, stored: Mapping[str, Stored], saved: BertConfig) -> tuple[dict[str, np.ndarray], str]:
        """The weights of each head of words that the file holds whole."""
        encoder, (_, bias) = saved.encoder, self.names(saved)
        words, table = shapes_of(encoder.head(saved, "MaskedLM", 0)), next(iter(encoder.shapes(saved)))
        pairs = [name for name in shapes_of(encoder.head(saved, self.kind, 0)) if name not in words]
        *decoders, second_bias = self.second_names(saved)
        if bias not in stored and second_bias in stored:
            stored = {**stored, bias: stored[second_bias]}
        missing = []
        if not all(name in stored for name in words):
            words, missing = {}, ["the file has no masked-word head"]
        elif not all(_is_same(stored[name], stored[table]) for name in decoders if name in stored):
            words, missing = {}, ["the decoder of the file's masked-word head is not its table of embeddings"]
        if not all(name in stored for name in pairs):
            pairs, missing = [], [*missing, "the file has no next-sentence head"]
        return {name: stored[name].read() for name in (*words, *pairs)}, "; ".join(missing)


def _is_same(one: Stored, other: Stored) -> bool:
    return one.shape == other.shape and np.array_equal(one.read(), other.read())


class Read(NamedTuple):
    """What a model's file gave.

    Attributes:
        tensors: The weights that the model can use, by PyTorch name.
        reason: Why the head was left out; empty if it was not, or the file has none.
        names: All weights in the file.
    """

    tensors: dict[str, np.ndarray]
    reason: str
    names: list[str]

    @property
    def because(self) -> str:
        """The reason after a list of weights."""
        return self.reason and f" ({self.reason})"


def read_weights(directory: pathlib.Path, bert_config: BertConfig, head: Head | None) -> Read:
    """The weights in a model's file that a model with this head can use; a head that means something else is left out.

    Args:
        directory: What `resolve_model` returned.
        bert_config: The file's own configuration.
        head: What stands above the encoder; None for nothing.

    Raises:
        UsageError: for files that do not fit each other.
    """
    encoder, path = bert_config.encoder, weights.find_weight_file(directory)
    with weights.open_weights(path, encoder.PREFIX, encoder.PARTS) as stored:
        # Before anything is read or built: a few bytes can describe more than a machine holds.
        parts = encoder.shapes(bert_config)
        of_head = shapes_of(encoder.head(bert_config, head.kind, len(head.labels))) if head else {}
        if head and head.kind not in WORDS:  # Which has a row for each label; config.json need not give their number.
            own = head.names(bert_config)
            rows = next((stored[name].shape[:1] for name in own if name in stored), ())
            of_head |= {name: (*rows, *of_head[name][1:]) for name in own}
        needed = {name for name in parts if not name.startswith(f"{encoder.PREFIX}.pooler.")}
        shapes = {name: shape for name, shape in (parts | of_head).items() if name in stored or name in needed}
        if what := weights.describe_mismatch(stored, shapes):
            todo = "Check that both are of the same model"
            if not needed & stored.keys():
                what, todo = f"{what}, but with {list_names(stored)}", "Save them under transformers' names"
            rule = "The weights must be those that config.json describes"
            raise UsageError(f"{rule}. Received: {path} with {what}. {todo}.")
        parts = encoder.shapes(bert_config, head.kind if head else "Model")
        tensors = {name: stored[name].read() for name in parts if name in stored}
        more, reason = head.read(stored, bert_config) if head else ({}, "")
        return Read(tensors | more, reason, list(stored))


def fill(model: Any, read: Read, head: Head | None, *, seed: int, scale: float) -> list[str]:
    """Assigns all weights of a built model; what no file gave is drawn, and its names are the model's `new_weights`.

    Args:
        model: One of our classes.
        read: What the file gave.
        head: What stands above the encoder.
        seed: Decides the new weights.
        scale: Their deviation.

    Returns:
        Lines for users: which weights are new, and which of the file are unused.
    """
    shapes, lines = weights.get_shapes(weights.named_variables(model)), []
    model.new_weights = new = tuple(name for name in shapes if name not in read.tensors)
    if new:
        lines.append(f"New weights, to be trained: {', '.join(new)}{read.because}.")
    seconds = head.second_names(model.config) if head else ()
    if unused := [name for name in read.names if name not in shapes and name not in seconds]:
        lines.append(f"Weights in the file that this model does not use: {weights.group_names(unused)}.")
    drawn = {name: _draw(name, shapes[name], seed, scale) for name in new}
    weights.set_weights_dict(model, read.tensors | drawn)
    return lines


def set_resized(model: Any, values: Mapping[str, np.ndarray], *, seed: int, scale: float) -> None:
    """Assigns weights to a model of which some have another number of rows now; rows that are new are drawn.

    Args:
        model: As of `fill`.
        values: Its weights before.
        seed: Decides the new rows.
        scale: Their deviation.
    """
    resized = dict(values)
    for name, shape in weights.get_shapes(weights.named_variables(model)).items():
        if shape != values[name].shape:
            resized[name] = _draw(name, shape, seed, scale)
            kept = min(shape[0], len(values[name]))
            resized[name][:kept] = values[name][:kept]
    weights.set_weights_dict(model, resized)


def save_pretrained(model: Any, tokenizer: Tokenizer | None, directory: pathlib.Path) -> None:
    """Writes model and tokenizer so that transformers loads them in PyTorch.

    `config.json` comes last: a directory that has it is complete.

    Args:
        model: One of our classes.
        tokenizer: Its tokenizer; None writes the model alone.
        directory: Where `config.json`, `model.safetensors` and the tokenizer's files go; made if needed.

    Raises:
        RunError: if they cannot be written.
    """
    directory = pathlib.Path(directory)
    values = model.config.to_diff_dict()
    values.pop("_name_or_path", None)
    values |= {"architectures": [type(model).__name__.removeprefix("TF")], "torch_dtype": "float32"}
    # Two classes called LABEL_0 and LABEL_1 are transformers' default and would be left out.
    values |= {"id2label": model.config.id2label, "label2id": model.config.label2id}
    partial = directory / ".model.partial"
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"A model is saved as a directory. Received: {directory}, a file. Pass another path.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()  # Files are moved here from a new directory: none is written through a link.
        if tokenizer is not None:
            fills_masks = values["architectures"][0].endswith(("ForPreTraining", "ForMaskedLM"))
            tokenizer.save(partial, model_max_length=model.config.num_positions, fills_masks=fills_masks)
        weights.write_weights(weights.get_weights_dict(model), partial / weights.SAFETENSORS)
        (partial / "config.json").write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        for path in sorted(partial.iterdir(), key=lambda path: path.name == "config.json"):
            path.replace(directory / path.name)
    except OSError as error:
        rule = "The model must be written whole"
        received = f"{directory} ({first_line(error)})"
        raise RunError(f"{rule}. Received: {received}. Check free space and permissions there.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _draw(name: str, shape: tuple[int, ...], seed: int, initializer_range: float) -> np.ndarray:
    """A new weight's values, float32: BERT's initialisation as a pure function of the seed and the name."""
    if name.endswith("orm.weight"):  # LayerNorm, layer_norm, attn_norm.
        return np.ones(shape, np.float32)
    if name.endswith(".bias"):
        return np.zeros(shape, np.float32)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return rng.standard_normal(shape, np.float32) * np.float32(initializer_range)
