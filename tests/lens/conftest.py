"""A tiny Llama as the two files of llama2.c."""

from pathlib import Path

import pytest

from tiny_llama import write_llama


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("llama"))
