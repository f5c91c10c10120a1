"""Where a model's files come from: the hub or a directory; their `config.json` and their vocabulary."""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tfbert.config.parts import SCRATCH_PREFIX, ModelConfig
from tfbert.errors import UsageError, first_line
from tfbert.model import bert_config, keras_hub, tf1_checkpoint, weights

if TYPE_CHECKING:
    from tfbert.tokens.tokenizer import Tokenizer

log = logging.getLogger("tfbert")

_MINIATURES = {
    f"L-{layers}_H-{hidden}": (layers, hidden, hidden // 64, 30_000)
    for layers in (2, 4, 6, 8, 10, 12)
    for hidden in (128, 256, 512, 768)
}
SCRATCH_LAYOUTS = {
    "tiny": (2, 128, 2, 4_000),
    "mini": (4, 256, 4, 8_000),
    "small": (4, 512, 8, 16_000),
    "medium": (8, 512, 8, 16_000),
    "base": (12, 768, 12, 30_000),
    "large": (24, 1024, 16, 30_000),
} | _MINIATURES
"""Layers, hidden size, attention heads, and the size of the vocabulary that is learned. `L-4_H-256` and the like are
Google's 24 miniatures (Turc et al. 2019), of which tiny, mini, small and medium are four by name."""

_TOKENIZER_FILES = (
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "tokenizer*.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
_HUB_WEIGHTS = (
    ("model.safetensors", "model.safetensors.index.json", "model-*-of-*.safetensors"),
    ("tf_model.h5",),
    ("pytorch_model.bin",),
    # KerasHub's presets, some of which are on this hub.
    ("model.weights.h5", "model.weights.json", "model_*.weights.h5", "task.json", "task.weights.h5", "assets/*"),
)
_HF_SCHEME = "hf://"
"""How KerasHub begins the names of this hub."""


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
        from_kaggle = None if name.endswith(keras_hub.ARCHIVE) else keras_hub.download(name)
        if not from_kaggle and (directory.exists() or _looks_like_path(name.removeprefix(_HF_SCHEME))):
            raise _usage("A path must lead to a model's directory or .keras file", name, "", "Check the path")
        files = _HUB_WEIGHTS if needs_weights else ((),)
        directory = from_kaggle or _download(name.removeprefix(_HF_SCHEME), options, files)
    if not _config_file(directory).is_file():
        todo = "Pass the directory of a model, as transformers' save_pretrained writes it"
        if (directory / "adapter_config.json").is_file():
            todo = "It holds an adapter: pass the model with its updates in it, as LoRA's run directory has it"
        rule = f"A model's directory must hold config.json, or Google's {tf1_checkpoint.CONFIG}"
        raise _usage(rule, name, f" without it in {directory}", todo)
    if needs_weights and weights.find_weight_file(directory) is None:
        todo = f"Add one of {', '.join(weights.WEIGHT_FILES)}, or the files bert_model.ckpt.*"
        raise _usage("A model's directory must hold its weights", name, f" without any in {directory}", todo)
    return directory


def load_values(directory: pathlib.Path) -> dict[str, Any]:
    """What the model's `config.json`, or `bert_config.json`, holds, checked; what a model of KerasHub says is put into
    the same terms."""
    file = _config_file(keras_hub.plain(directory))
    return bert_config.checked(bert_config.read_values(file), file)


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
    from tfbert.tokens.pretrained import read_casing
    from tfbert.tokens.tokenizer import BertTokenizer
    from tfbert.tokens.vocabulary import learn_vocabulary, read_vocab_file

    plain = keras_hub.plain(directory) if directory else None
    if config.vocab_file:
        path = pathlib.Path(config.vocab_file)
        tokens = read_vocab_file(path)
        casing = read_casing(plain or path.parent, tokens)
        lower = "lower-cased" if casing["do_lower_case"] else "not lower-cased"
        log.info("Text is %s for the vocabulary %s.", lower, config.vocab_file)
        return BertTokenizer.from_vocab_file(path, **casing)
    if plain and plain != directory and not (plain / "vocab.txt").is_file():
        raise UsageError(
            "A KerasHub model must hold the vocabulary of its tokenizer. "
            f"Received: {directory} without one. Save it with its preprocessor, or pass --vocab_file."
        )
    if plain:
        return read_tokenizer(plain)
    *_, vocab_size = SCRATCH_LAYOUTS[config.name.removeprefix(SCRATCH_PREFIX)]
    tokenizer = BertTokenizer(learn_vocabulary(training_texts, vocab_size=vocab_size))
    log.info("Learned a vocabulary of %d tokens from the training texts.", tokenizer.vocab_size)
    return tokenizer


def own_vocab_size(directory: pathlib.Path) -> int | None:
    """How many tokens the vocabulary of a model's directory has, if it has one in a file of its own."""
    from tfbert.tokens.vocabulary import read_vocab_file

    path = keras_hub.plain(directory) / "vocab.txt"
    return len(read_vocab_file(path)) if path.is_file() else None


def _config_file(directory: pathlib.Path) -> pathlib.Path:
    """`config.json`, or Google's `bert_config.json` if only that exists."""
    path, google = directory / "config.json", directory / tf1_checkpoint.CONFIG
    return google if google.is_file() and not path.is_file() else path


def _looks_like_path(name: str) -> bool:
    """Whether a name, which no file has, was meant as a path: hub names are NAME or OWNER/NAME."""
    return (
        name.startswith(("/", ".", "~"))
        or name.endswith("/")
        or "\\" in name
        or name.endswith(keras_hub.ARCHIVE)
        or name.count("/") > 1
        or (name.count("/") == 1 and pathlib.Path(name).parent.is_dir())
    )


def _download(name: str, options: dict[str, Any], weight_files: Iterable[tuple[str, ...]]) -> pathlib.Path:
    import huggingface_hub
    from huggingface_hub import errors

    try:
        directory = pathlib.Path(
            huggingface_hub.snapshot_download(name, allow_patterns=["config.json", *_TOKENIZER_FILES], **options)
        )
        if (directory / "config.json").is_file():  # What is no BERT is refused before its weights are downloaded.
            load_values(directory)
        for files in weight_files:
            patterns = ["config.json", *_TOKENIZER_FILES, *files]
            directory = pathlib.Path(huggingface_hub.snapshot_download(name, allow_patterns=patterns, **options))
            if weights.find_weight_file(directory):
                break
        return directory
    except errors.GatedRepoError:
        reason = "its terms must be accepted on huggingface.co, by the account of your token"
    except errors.RepositoryNotFoundError:
        reason = "the hub has no such public model"
    except errors.HFValidationError:
        reason = "neither a directory nor a possible name on the hub"
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
