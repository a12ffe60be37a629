"""The walk-through runs from top to bottom, and what it shows was made by running it."""

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "docs" / "notebooks" / "digits.ipynb"


def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own assertions say what must hold."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONWARNINGS", "error::UserWarning")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    shown = _text(notebook)
    assert "accuracy on all ten" in shown
    assert sum("assert" in cell.source for cell in notebook.cells) >= 5


def test_the_notebook_is_kept_with_its_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert "accuracy on all ten" in _text(notebook)
    assert not any(output.output_type == "error" for cell in cells for output in cell.outputs)
    assert "/tmp" not in NOTEBOOK.read_text()
    assert "/home" not in NOTEBOOK.read_text()


def test_the_page_is_what_the_notebook_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import walkthrough

    stale = walkthrough.PAGE.read_text() != walkthrough.page(NOTEBOOK)
    assert not stale, "run `python benchmarks/walkthrough.py`"


def _text(notebook: nbformat.NotebookNode) -> str:
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return "".join(output.get("text", "") for cell in cells for output in cell.outputs)
