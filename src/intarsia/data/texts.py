"""Texts as inputs: whole numbers of their tokens, where an encoder that reads texts comes next."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.encoders.encoder import is_texts
from intarsia.errors import DataError

Tokens = Callable[[Sequence[str]], np.ndarray]
"""A function from texts to whole numbers, N x length."""

INPUTS = ("x", "x_train", "x_test")


def as_tokens(x: Any, tokens: Tokens | None, where: str) -> Any:
    """The tokens of texts; inputs that are no texts as they are."""
    if not is_texts(x):
        return x
    if tokens is None:
        raise DataError(
            f"{where}: x holds texts: say what reads them, as in load_data(..., features='minilm')"
        )
    return tokens([str(text) for text in x])


def tokenised(arrays: Mapping[str, Any], tokens: Tokens | None, where: str) -> dict[str, Any]:
    """Arrays by name, with tokens for texts among the inputs."""
    return {
        key: as_tokens(value, tokens, where) if key in INPUTS else value
        for key, value in arrays.items()
    }
