"""The pages of results hold the figures that lie beside them, and nothing else."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_pages_are_what_their_figures_make(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import tables

    stale = [str(path) for path, text in tables.written().items() if path.read_text() != text]
    assert not stale, f"run `make results`: {stale} are older than their figures"
