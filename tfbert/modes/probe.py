"""Rows on which an exported model is compared with the model itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tfbert.tokens.tokenizer import BertTokenizer

if TYPE_CHECKING:
    from tfbert.model.configuration import BertConfig

_ROWS, _WIDTH = 8, 32


def random_pairs(config: BertConfig, tokenizer: BertTokenizer, *, width: int = _WIDTH) -> dict[str, np.ndarray]:
    """The inputs of random pairs of several lengths.

    Args:
        config: The model's configuration.
        tokenizer: Its tokenizer.
        width: The longest, in tokens; no more than the model has positions.

    Returns:
        `input_ids`, `attention_mask` and `token_type_ids`, int32 `[8, width]`, the same in each call.
    """
    rng, width = np.random.default_rng(0), min(width, config.max_position_embeddings)
    lengths = rng.integers(1, width + 1, _ROWS)
    mask = (np.arange(width) < lengths[:, None]).astype(np.int32)
    second = (np.arange(width) >= lengths[:, None] // 2) & (config.type_vocab_size > 1)
    return {
        "input_ids": (rng.integers(0, tokenizer.vocab_size, mask.shape) * mask).astype(np.int32),
        "attention_mask": mask,
        "token_type_ids": second.astype(np.int32) * mask,
    }
