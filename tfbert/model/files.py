"""What describes a model: its `config.json`, read and checked against one table of rules, as transformers' `BertConfig`
and the like, without transformers; its vocabulary; and where these files come from: the hub or a directory."""

from __future__ import annotations

import copy
import json
import logging
import pathlib
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfbert.config.modes import SCRATCH_LAYOUTS, SCRATCH_PREFIX, ModelConfig
from tfbert.config.tables import ENCODERS, model_type_of
from tfbert.config.types import architecture_problem
from tfbert.data.reading import read_json_object
from tfbert.errors import UsageError, first_line
from tfbert.model import keras_hub, weights
from tfbert.model.encoders import Bert, encoder_of
from tfbert.model.weights import CONFIG
from tfbert.output.output_dir import RESULTS, RUN_CONFIG

if TYPE_CHECKING:
    from tfbert.tokens.tokenizer import Tokenizer

log = logging.getLogger("tfbert")


OWN_FIELD = "tfbert"
"""The field in which training records what transformers has no name for: `num_texts`, `max_seq_length`, `columns`."""

_LAYOUT_KEYS = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")

Rule = tuple[str, Callable[[Any], bool]]
"""What a value must be: in words, and as a function."""


def _whole(low: int, high: int) -> Rule:
    # To Python a bool is an int; and 768.0 is no size.
    return f"a whole number from {low:,} to {high:,}", lambda value: type(value) is int and low <= value <= high


def _fraction(*, below_one: bool) -> Rule:
    rule = f"a number from 0 to {'below ' if below_one else ''}1"  # NaN is none.
    return rule, lambda value: type(value) in (int, float) and 0 <= value <= 1 and not (below_one and value == 1)


def _or_null(rule: Rule) -> Rule:
    return f"{rule[0]}, or null", lambda value: value is None or rule[1](value)


def _one_of(values: Sequence[Any]) -> Rule:
    return f"one of {', '.join(map(repr, values))}", lambda value: value in values


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_own_field(value: Any) -> bool:
    columns = value.get("columns", {}) if isinstance(value, dict) else None
    return (
        isinstance(columns, dict)
        and all(map(_are_names, columns.values()))
        and _or_null(_whole(1, 2))[1](value.get("num_texts"))
        and _or_null(_whole(2, 1 << 20))[1](value.get("max_seq_length"))
    )


_FALSE = ("false, as in an encoder every token attends to all others", lambda value: not value)
# The limits are far above every BERT, and low enough that nothing here takes a minute or fills the memory.
_RULES: dict[str, Rule] = {
    "vocab_size": _whole(1, 10_000_000),
    "hidden_size": _whole(1, 1 << 16),
    "num_hidden_layers": _whole(1, 1000),
    "num_attention_heads": _whole(1, 1 << 16),
    "intermediate_size": _whole(1, 1 << 20),
    "max_position_embeddings": _whole(1, 1 << 20),
    "type_vocab_size": _whole(1, 1 << 16),
    "num_labels": _whole(1, 1 << 20),
    "pad_token_id": _or_null(("a whole number", lambda value: type(value) is int)),
    "classifier_dropout": _or_null(_fraction(below_one=True)),
    "layer_norm_eps": _fraction(below_one=False),
    "initializer_range": _fraction(below_one=False),
    "hidden_act": ("the name of a function", lambda value: isinstance(value, str)),
    "problem_type": _or_null(_one_of(("regression", "single_label_classification", "multi_label_classification"))),
    "architectures": _or_null(("a list of names", _are_names)),
    "label2id": _or_null(("an object", lambda value: isinstance(value, dict))),
    "position_embedding_type": ("'absolute', the only one here", lambda value: value == "absolute"),
    "is_decoder": _FALSE,
    "add_cross_attention": _FALSE,
    "pruned_heads": _or_null(("an object without any, as all heads are computed", lambda value: value == {})),
    "quantization_config": _or_null(("an object", lambda value: isinstance(value, dict))),
    OWN_FIELD: _or_null(("an object with num_texts (1 or 2), max_seq_length (2 or more), columns", _is_own_field)),
}


def record_inputs(
    config: Any,
    *,
    num_texts: int | None,
    max_seq_length: int | None,
    columns: Mapping[str, Sequence[str]] | None = None,
    **others: Any,
) -> None:
    """Records in a model's configuration, and so in its `config.json`, what inputs it is trained on.

    Args:
        config: The model's.
        num_texts: 1 for single texts, 2 for pairs; None if unknown.
        max_seq_length: Longest input in tokens.
        columns: Those of the training data, by the options that name them.
        **others: Anything that JSON can hold.

    Raises:
        UsageError: for pairs on a model that cannot tell the second text from the first.
    """
    check_token_types(config, num_texts or 1)
    read = {"columns": {option: [*names] for option, names in columns.items()}} if columns else {}
    setattr(config, OWN_FIELD, {"num_texts": num_texts, "max_seq_length": max_seq_length, **read, **others})


def check_token_types(config: Any, num_texts: int) -> None:
    """Refuses pairs on a model without a second token type.

    Reading a row that the embedding table lacks fails on a CPU, and gives zeros on a GPU.

    Raises:
        UsageError: for such pairs.
    """
    if config.encoder.TOKEN_TYPES and num_texts > config.type_vocab_size:
        rule = "Pairs of texts need a model with two token types"
        received = f"pairs with type_vocab_size={config.type_vocab_size} in the model's config.json"
        raise UsageError(f"{rule}. Received: {received}. Pass another model, or one column with --text_column.")


_TOKENIZER_FILES = ("vocab.txt", "vocab.json", "merges.txt", "tokenizer*.json")
_TOKENIZER_FILES += ("special_tokens_map.json", "added_tokens.json")
_HUB_WEIGHTS = (
    ("model.safetensors", "model.safetensors.index.json", "model-*-of-*.safetensors"),
    ("tf_model.h5",),
    ("pytorch_model.bin",),
    # KerasHub's presets, some of which are on this hub.
    ("model.weights.h5", "model.weights.json", "model_*.weights.h5", "task.json", "task.weights.h5", "assets/*"),
)
_HF_SCHEME = "hf://"
"""How KerasHub begins the names of this hub."""
MODEL_FILES = re.compile(
    r"(vocab(ulary)?|merges)\.txt|(vocab|tokenizer.*|special_tokens_map|added_tokens)\.json"
    r"|((bert_)?config|task|model\.weights)\.json|checkpoint|.+\.(safetensors|h5|bin|keras)(\.index\.json)?|.+\.ckpt.*"
)
"""The files of a model's directory that decide what the model is; others are reports, and what a run writes beside."""


def resolve_model(config: ModelConfig, *, needs_weights: bool = True, **options: Any) -> pathlib.Path | None:
    """Finds the model's files, and downloads them for a hub name that is not a directory.

    From the hub come `config.json`, the tokenizer's files and one weight file: safetensors, else TensorFlow's, else
    PyTorch's, else KerasHub's. KerasHub's own names come from Kaggle.

    Args:
        config: Names the model.
        needs_weights: Whether its configuration alone is not enough.
        **options: Those of `huggingface_hub.snapshot_download`, such as `revision`.

    Returns:
        The directory that holds them, or the `.keras` file; None for `scratch/`.

    Raises:
        UsageError: where there is no such directory or model, files are missing, or the hub cannot be reached.
    """
    if config.is_scratch:
        return None
    name = config.model_name_or_path
    directory = pathlib.Path(name).expanduser()
    if keras_hub.is_archive(directory):
        keras_hub.plain(directory)
        return directory
    if not directory.is_dir():
        from huggingface_hub.utils import validate_repo_id

        from_kaggle, on_hub = keras_hub.download(name), name.removeprefix(_HF_SCHEME)
        if not from_kaggle:
            try:
                validate_repo_id(on_hub)  # Else OWNER/NAME may still be meant as a path: where OWNER is a directory.
                is_path = directory.exists() or name.endswith(keras_hub.ARCHIVE)
                is_path |= "/" in name and directory.parent.is_dir()
            except ValueError:
                is_path = True
            if is_path:
                raise _usage("A path must lead to a model's directory or .keras file", name, "", "Check the path")
        directory = from_kaggle or _download(on_hub, options, _HUB_WEIGHTS if needs_weights else ())
    if not _config_file(directory).is_file():
        todo = "Pass the directory of a model, as transformers' save_pretrained writes it"
        if inside := sorted(directory.glob("*/config.json"), key=lambda file: file.stat().st_mtime):
            todo += f", such as {inside[-1].parent}"  # The last that transformers' Trainer wrote, as checkpoint-500.
        if (directory / "adapter_config.json").is_file():
            todo = "It holds an adapter: pass the model with its updates in it, as LoRA's run directory has it"
        if (directory / RUN_CONFIG).is_file() and not (directory / RESULTS).is_file():
            again = f"The command that began it resumes it, with --output_dir={directory}"
            todo = f"{again}; or pass a checkpoint, {directory}/checkpoints/step-N, where there is one"
            raise _usage("A run's directory holds a model when the run has ended", name, ", a run that has not", todo)
        rule = f"A model's directory must hold config.json, or Google's {CONFIG}"
        raise _usage(rule, name, f" without it in {directory}", todo)
    if needs_weights and weights.find_weight_file(directory) is None:
        todo = f"Add one of {', '.join(weights.WEIGHT_FILES)}, or the files bert_model.ckpt.*"
        raise _usage("A model's directory must hold its weights", name, f" without any in {directory}", todo)
    return directory


def load_config(directory: pathlib.Path) -> BertConfig:
    """The configuration of a model by its directory, checked: what its `config.json`, or Google's file, holds; what a
    model of KerasHub says is put into the same terms.

    Raises:
        UsageError: where it describes no encoder that is here, or not all of it.
    """
    file = _config_file(keras_hub.plain(directory))
    values = read_json_object(file, "config.json must be readable JSON")
    if problem := architecture_problem(values, file):
        raise UsageError(problem)
    encoder = encoder_of(model_type_of(values))
    names = [encoder.FIELDS.get(key, key) for key in _LAYOUT_KEYS]
    if absent := [own for key, own in zip(_LAYOUT_KEYS, names, strict=True) if not {key, own} & values.keys()]:
        raise UsageError(f"config.json must describe a model. Received: {file} without {', '.join(absent)}. Add them.")
    return BertConfig.from_dict(values | {"model_type": model_type_of(values)}, _path=file)


def load_tokenizer(config: ModelConfig, directory: pathlib.Path | None, *, training_texts: Iterable[str]) -> Tokenizer:
    """The model's tokenizer: from `vocab_file`, from the model's own files, or, for `scratch/`, learned from the texts.

    Args:
        config: Names the model and the vocabulary.
        directory: What `resolve_model` returned.
        training_texts: Read only when a vocabulary has to be learned from them.

    Raises:
        UsageError: for an unusable vocabulary.
    """
    from tfbert.tokens.host import read_tokenizer
    from tfbert.tokens.tokenizer import BertTokenizer
    from tfbert.tokens.vocabulary import learn_vocabulary, read_casing, read_vocab_file

    plain = keras_hub.plain(directory) if directory else None
    if config.vocab_file:
        path = pathlib.Path(config.vocab_file)
        tokens = read_vocab_file(path)
        casing = read_casing(plain or path.parent, tokens)
        lower = "lower-cased" if casing["do_lower_case"] else "not lower-cased"
        log.info("Text is %s for the vocabulary %s.", lower, config.vocab_file)
        return BertTokenizer.from_vocab_file(path, **casing)
    if plain and plain != directory and not (plain / "vocab.txt").is_file():
        rule = "A KerasHub model must hold the vocabulary of its tokenizer"
        received = f"{directory} without one"
        raise UsageError(f"{rule}. Received: {received}. Save it with its preprocessor, or pass --vocab_file.")
    if plain:
        return read_tokenizer(plain)
    *_, vocab_size = SCRATCH_LAYOUTS[config.name.removeprefix(SCRATCH_PREFIX)]
    tokenizer = BertTokenizer(learn_vocabulary(training_texts, vocab_size=vocab_size))
    log.info("Learned a vocabulary of %d tokens from the training texts.", tokenizer.vocab_size)
    return tokenizer


def _config_file(directory: pathlib.Path) -> pathlib.Path:
    """`config.json`, or Google's `json` if only that exists."""
    path, google = directory / "config.json", directory / CONFIG
    return google if google.is_file() and not path.is_file() else path


def _download(name: str, options: dict[str, Any], weight_files: Iterable[tuple[str, ...]]) -> pathlib.Path:
    import huggingface_hub
    from huggingface_hub import errors

    def fetch(*files: str) -> pathlib.Path:
        patterns = ["config.json", *_TOKENIZER_FILES, *files]
        return pathlib.Path(huggingface_hub.snapshot_download(name, allow_patterns=patterns, **options))

    try:
        directory = fetch()
        if (directory / "config.json").is_file():  # What is no BERT is refused before its weights are downloaded.
            load_config(directory)
        for files in weight_files:
            directory = fetch(*files)
            if weights.find_weight_file(directory):
                break
        return directory
    except errors.GatedRepoError:
        reason = "its terms must be accepted on huggingface.co, by the account of your token"
    except errors.RepositoryNotFoundError:
        reason = "the hub has no such public model"
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled):
        reason = "no such directory, the hub cannot be reached (or HF_HUB_OFFLINE is set), and it is not in its cache"
    except UsageError:
        raise
    except (OSError, ValueError) as error:
        reason = first_line(error)
    todo = "Pass a local directory with config.json, weights and vocab.txt: --model=DIR"
    raise _usage("A model must be a local directory or on the Hugging Face hub", name, f": {reason}", todo)


def _usage(rule: str, name: str, what: str, todo: str) -> UsageError:
    return UsageError(f"{rule}. Received: model={name!r}{what}. {todo}.")


_UNSAID = {"classifier_dropout": None, "problem_type": None, "architectures": None, "return_dict": True}
_UNSAID |= {"output_hidden_states": False, "output_attentions": False}
"""What `config.json` says only where it is otherwise; of the rest, KerasHub and others take no default."""
_DEFAULTS: dict[str, Any] = _UNSAID | {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}
HUB_OPTIONS = ("revision", "token", "cache_dir", "force_download", "local_files_only")
"""What `from_pretrained` passes on to the hub."""


class BertConfig:
    """The size of a BERT, its rates and its labels, as `config.json` holds them; other encoders' derive from it.

    Args:
        _path: The file that the values are from, for messages.
        **values: Any of the fields in transformers' `config.json`; `num_labels`, or the names of labels as `id2label`.
            Fields of other names are kept.

    Raises:
        UsageError: for values that describe no such model, or a decoder.
    """

    model_type = "bert"
    architectures: list[str] | None
    problem_type: str | None
    id2label: dict[int, str]

    def __init__(self, *, _path: pathlib.Path | None = None, **values: Any):
        path, encoder = _path or pathlib.Path(type(self).__name__), self.encoder
        if not _path:
            values = {name: value for name, value in values.items() if (name, value) != ("num_labels", None)}
            if isinstance(values.get("id2label"), (list, tuple)):
                values["id2label"] = dict(enumerate(values["id2label"]))
        if problem := architecture_problem({"model_type": self.model_type} | values, path):
            raise UsageError(problem)
        values = _DEFAULTS | encoder.DEFAULTS | encoder.in_our_names(values)
        if (given := values.pop("model_type", self.model_type)) != self.model_type:
            rule = f"{type(self).__name__} is of model_type {self.model_type}"
            raise UsageError(f"{rule}. Received: model_type={given!r}. Use {CONFIGS[given].__name__}.")
        rules = _RULES | {name: _whole(least, 10_000_000) for name, least in encoder.SIZES.items()}
        rules |= dict.fromkeys(encoder.RATES, _fraction(below_one=True))
        rules |= {name: _one_of(choices) for name, choices in encoder.CHOICES.items()}
        for key, (what, holds) in rules.items():
            if key in values and not holds(values[key]):
                theirs = encoder.FIELDS.get(key, key)
                shown = f"{theirs}={reprlib.repr(values[key])} in {path}"
                raise UsageError(f"config.json must give {theirs} as {what}. Received: {shown}. Repair it.")
        if problem := encoder.problem(values):
            rule = "config.json must describe a model that is here"
            raise UsageError(f"{rule}. Received: {problem}, in {path}. Pass another.")
        if _path and values.get("id2label") is not None:  # Which may be of a head, and the number of another.
            values.pop("num_labels", None)
        vars(self).update(copy.deepcopy(_with_labels(values, path)))

    def __getattr__(self, name: str) -> Any:
        """A field by the name that this encoder's `config.json` has for it."""
        ours = {theirs: ours for ours, theirs in self.encoder.FIELDS.items()}
        if name not in ours:
            raise AttributeError(f"{type(self).__name__} has no {name!r}.")
        return getattr(self, ours[name])

    def __setattr__(self, name: str, value: Any) -> None:
        """Likewise."""
        super().__setattr__(*self.encoder.in_our_names({name: value}), value)

    @property
    def encoder(self) -> Bert:
        """What differs between this encoder and others."""
        return encoder_of(self.model_type)

    @property
    def num_positions(self) -> int:
        """How many tokens a text may have."""
        return self.max_position_embeddings - (self.pad_token_id + 1 if self.encoder.COUNTS_FROM_PAD else 0)

    @property
    def num_labels(self) -> int:
        """How many labels there are; assign a number to name them `LABEL_0` and so on."""
        return len(self.id2label)

    @num_labels.setter
    def num_labels(self, count: int) -> None:
        self.update({"num_labels": count})

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | pathlib.Path, **values: Any) -> BertConfig:
        """The configuration of a model by its directory or its name on the hub, with some values changed."""
        options = {option: values.pop(option) for option in HUB_OPTIONS if option in values}
        name = str(pretrained_model_name_or_path)
        directory = resolve_model(ModelConfig(model_name_or_path=name), needs_weights=False, **options)
        if directory is None:
            rule = "A model must have files"
            raise UsageError(f"{rule}. Received: {name}. Pass a directory, or BertConfig(...) for none.")
        return cls.from_dict(load_config(directory).to_dict(), **values)

    @classmethod
    def from_dict(cls, values: dict[str, Any], *, _path: pathlib.Path | None = None, **changed: Any) -> BertConfig:
        """The inverse of `to_dict`, with some values changed; of the class that `model_type` says."""
        dropped = ["num_labels"] if values.get("id2label") is not None and not _path else []
        if {"num_labels", "id2label"} & changed.keys():
            dropped = ["num_labels", "id2label", "label2id"]
        values = {"model_type": cls.model_type} | {n: value for n, value in values.items() if n not in dropped}
        made = CONFIGS.get(model_type_of(values), cls)
        in_our_names = encoder_of(made.model_type).in_our_names
        return made(_path=_path, **in_our_names(values) | in_our_names(changed))

    @classmethod
    def of(cls, config: Any) -> BertConfig:
        """A configuration of ours from one, from transformers', or from a dictionary."""
        if isinstance(config, BertConfig):
            return config
        values = config.to_diff_dict() if hasattr(config, "to_diff_dict") else config
        if isinstance(values, dict):
            return cls.from_dict(values)
        todo = "Pass BertConfig(...), or call from_pretrained for a model that exists."
        raise UsageError(f"A model is described by a BertConfig. Received: {type(config).__name__}. {todo}")

    def to_dict(self) -> dict[str, Any]:
        """All values, as `config.json` may hold them."""
        theirs = {self.encoder.FIELDS.get(name, name): value for name, value in vars(self).items()}
        return copy.deepcopy(theirs) | {"model_type": self.model_type}

    def to_diff_dict(self) -> dict[str, Any]:
        """The values that `config.json` holds: all but those that are the usual ones of every model."""
        return {name: v for name, v in self.to_dict().items() if name not in _UNSAID or v != _UNSAID[name]}

    def to_json_string(self) -> str:
        """`config.json` as a text."""
        return json.dumps(self.to_diff_dict(), indent=2, sort_keys=True) + "\n"

    def save_pretrained(self, directory: str | pathlib.Path) -> None:
        """Writes `config.json`; a model's `save_pretrained` does so too."""
        pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
        (pathlib.Path(directory) / "config.json").write_text(self.to_json_string(), encoding="utf-8")

    def update(self, values: dict[str, Any]) -> None:
        """Changes some values."""
        vars(self).update(vars(self.from_dict(self.to_dict(), **values)))

    def __eq__(self, other: Any) -> bool:
        return type(other) is type(self) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__} {self.to_json_string()}"


CONFIGS: dict[str, type[BertConfig]] = {
    kind: type(
        f"{row.classes}Config",
        (BertConfig,),
        {"model_type": kind, "__module__": __name__, "__doc__": BertConfig.__doc__},
    )
    for kind, row in ENCODERS.items()
} | {BertConfig.model_type: BertConfig}
"""Each encoder's class, by `model_type`."""
globals().update({made.__name__: made for made in CONFIGS.values()})


def _with_labels(values: dict[str, Any], path: pathlib.Path) -> dict[str, Any]:
    """The values with `id2label` and `label2id` in place of a number of labels, of which there are 2 by default. Some
    files number the labels, `{"0": 0, "1": 1}`; names are strings."""
    count, names = values.pop("num_labels", None), values.get("id2label")
    if names is None:
        names = {i: f"LABEL_{i}" for i in range(2 if count is None else count)}
    try:
        named = {int(key): str(name) for key, name in names.items() if isinstance(name, (str, int, float))}
        "".join(named.values()).encode()  # Half a surrogate pair cannot be written anywhere.
    except (AttributeError, ValueError):
        named = {}
    if not named or len(named) != len(names):
        shown = f"id2label={reprlib.repr(names)} in {path}"
        raise UsageError(f"id2label must name each label under its number. Received: {shown}. Repair it.")
    if count is not None and len(named) != count:
        rule = "Each label has a name"
        raise UsageError(f"{rule}. Received: num_labels={count} and id2label of {len(named)}. Leave out num_labels.")
    # In the order of their numbers, in whichever they are written.
    return values | {"id2label": dict(sorted(named.items())), "label2id": {name: i for i, name in named.items()}}
