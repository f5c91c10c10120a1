"""Uploading a trained model to the Hugging Face hub, for those who ask for it."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from tfbert.config.parts import HubConfig
from tfbert.errors import RunError, UsageError, first_line

if TYPE_CHECKING:
    from huggingface_hub import HfApi

UPLOADED = ("README.md", "config.json", "model.safetensors", "vocab.txt", "tokenizer.json", "tokenizer_config.json")
UPLOADED += ("special_tokens_map.json", "all_results.json", "run_config.json")
UPLOADED += ("adapter/adapter_config.json", "adapter/adapter_model.safetensors")
"""Files of an output directory that make up the model; checkpoints and logs are not uploaded."""


def check_login(api: HfApi | None = None) -> None:
    """Checks that the hub knows the user, before hours are spent on a model that could not be uploaded.

    Args:
        api: For a hub other than huggingface.co.

    Raises:
        UsageError: without a token, with one that is not valid, or where the hub cannot be reached.
    """
    try:
        (api or _api()).whoami()
    except Exception as error:  # huggingface_hub raises whatever its present HTTP client does.
        rule = "push_to_hub needs a login on the Hugging Face hub"
        todo = "Run hf auth login, set HF_TOKEN, or drop --push_to_hub."
        raise UsageError(f"{rule}. Received: {first_line(error)}. {todo}") from None


def push(directory: pathlib.Path, config: HubConfig, api: HfApi | None = None) -> str:
    """Uploads a run's model in one commit; creates the repository if it does not exist.

    Args:
        directory: The run's output directory.
        config: Names the repository.
        api: For a hub other than huggingface.co.

    Returns:
        The address of the commit.

    Raises:
        RunError: where it fails; the directory stays as it is.
    """
    api = api or _api()
    name = config.hub_model_id or directory.absolute().name
    try:
        repo = api.create_repo(name, private=config.hub_private_repo or None, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo.repo_id,
            folder_path=directory,
            allow_patterns=list(UPLOADED),
            commit_message="Model trained with tfbert",
        )
    except Exception as error:
        raise RunError(
            f"The model could not be uploaded to {name!r}: {first_line(error)}. It is whole in {directory}: "
            f"try again with hf upload {name} {directory}."
        ) from error
    return commit.commit_url


def _api() -> HfApi:
    from huggingface_hub import HfApi

    return HfApi()
