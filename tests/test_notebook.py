"""The walk-through is kept with what it showed, and its page, which test_docs.py runs."""

from pathlib import Path

import pytest

import walkthrough

nbformat = pytest.importorskip("nbformat")

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "docs" / "notebooks" / "digits.ipynb"


def test_the_notebook_is_kept_with_its_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert "accuracy on all ten" in _text(notebook)
    assert sum("assert" in cell.source for cell in cells) >= 5
    assert not any(output.output_type == "error" for cell in cells for output in cell.outputs)
    assert "/tmp" not in NOTEBOOK.read_text()
    assert "/home" not in NOTEBOOK.read_text()


def test_the_page_is_what_the_notebook_makes() -> None:
    stale = walkthrough.PAGE.read_text() != walkthrough.page(NOTEBOOK)
    assert not stale, "run `python docs/build/walkthrough.py`"


def _text(notebook: nbformat.NotebookNode) -> str:
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return "".join(output.get("text", "") for cell in cells for output in cell.outputs)
