"""The examples of the guide run from top to bottom, and its table of operators is complete."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import intarsia as ia
from intarsia.composition.operators import Operator
from intarsia.studies import STUDIES

GUIDE = Path(__file__).resolve().parents[1] / "docs" / "guide"
PAGES = ("composing", "diagnosing", "estimator", "export", "studies")
NEEDS = {"export": ("onnx", "onnxscript", "onnxruntime")}
# A fence with its language and title, and the comment right before it that says why it is not run.
FENCE = re.compile(
    r'(?P<not_run><!-- not run: [^\n]* -->\n+)?```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n'
    r"(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@pytest.fixture
def registry() -> Iterator[None]:
    """What a page registers goes with it."""
    known: tuple[dict[str, Any], ...] = (ia.OPERATORS, STUDIES)
    before = [dict(registry) for registry in known]
    yield
    for registry, entries in zip(known, before, strict=True):
        registry.clear()
        registry.update(entries)


@pytest.mark.usefixtures("one_thread", "registry")
@pytest.mark.parametrize("name", PAGES)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    text = (GUIDE / f"{name}.md").read_text()
    seen: dict[str, object] = {}
    ran = 0
    for fence in FENCE.finditer(text):
        if fence["title"]:
            (tmp_path / fence["title"]).write_text(fence["text"])
        if fence["language"] == "python" and not fence["not_run"]:
            above = "\n" * text.count("\n", 0, fence.start("text"))  # so that errors name the line
            exec(compile(above + fence["text"], f"{name}.md", "exec"), seen)
            ran += 1
    assert ran >= 2


def test_every_operator_is_in_the_guide() -> None:
    """With what it works on, its settings, and a star where it looks at samples."""
    text = (GUIDE / "composing.md").read_text()
    text = text[text.index("## All operators") : text.index("## Samples")]
    listed = {}
    for on in ("weights", "units", "logits"):
        part = text[text.index(f"\nOn {on}:") :].split("\n\n")[1]
        for row in part.splitlines()[2:]:
            cells = [cell.strip() for cell in row.strip("|").split("|")]
            listed[cells[0].strip("`*")] = (on, cells[0].endswith("*"), _ticked(cells[-1]))
    built = {
        name: (made.on, made.samples, [*inspect.signature(made).parameters][2:])
        for name, made in ia.OPERATORS.items()
        if isinstance(made, Operator) and made.function.__module__.startswith("intarsia.")
    }
    assert listed == built


def _ticked(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)
