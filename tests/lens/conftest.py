"""A tiny Llama as the two files of llama2.c."""

from pathlib import Path
from typing import Any

import pytest
import torch

from small_language_models import less_even
from tiny_llama import write_llama


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def tiny_llama() -> Any:
    """A causal model of transformers with three layers and 61 tokens."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=61, hidden_size=16, intermediate_size=24, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return less_even(transformers.LlamaForCausalLM(config))
