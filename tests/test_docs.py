"""The examples of the docs run from top to bottom and print what stands below them."""

import inspect
import re
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import pytest
import typer

import intarsia as ia
import intarsia.training
from intarsia.cli import app
from intarsia.composition.operators import Operator
from intarsia.files import digest_of
from intarsia.objectives import OBJECTIVES
from intarsia.pruning import PRUNINGS
from intarsia.studies import NAMES, STUDIES

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "benchmarks"))

from examples import blocks, lay_out, run_page, shown  # noqa: E402
from ideas import SETTINGS  # noqa: E402
from ideas_maps import inlay_figure, unit_figure  # noqa: E402

WRITTEN = sorted(
    path for folder in (DOCS, DOCS / "guide", DOCS / "howto") for path in folder.glob("*.md")
)
PAGES = [path for path in WRITTEN if any(block.runs for block in blocks(path.read_text()))]
ALL = [*WRITTEN, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
NEEDS = {"export": ("onnx", "onnxscript", "onnxruntime")}
LANGUAGES = {"python", "bash", "text", "yaml"}
SVG = "{http://www.w3.org/2000/svg}"
NEAR = 0.1  # how far a figure on a page may be from what is measured on another machine


@pytest.fixture(scope="module")
def banks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the banks of all pages are kept, each trained once."""
    return tmp_path_factory.mktemp("banks")


@pytest.fixture
def trained_once(banks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`train` finds the bank that another page has trained, as it finds a finished folder."""
    train = intarsia.training.train

    def once(data: Any = None, recipe: Any = None, *, out: Any = None, **given: Any) -> ia.Bank:
        if callable(given.get("model")) or recipe is not None:
            return train(data, recipe, out=out, **given)
        key = digest_of([data.digest, {k: str(v) for k, v in given.items()}])
        bank = train(data, out=banks / key, **given)
        if out is None:
            return bank
        shutil.copytree(banks / key, out)
        return train(data, out=out, **given)

    monkeypatch.setattr(intarsia.training, "train", once)


@pytest.fixture
def registries() -> Iterator[None]:
    """What a page registers goes with it; our own studies may have come meanwhile."""
    known: tuple[dict[str, Any], ...] = (ia.OPERATORS, OBJECTIVES, PRUNINGS, STUDIES)
    before = [{*registry, *NAMES} for registry in known]
    yield
    for registry, names in zip(known, before, strict=True):
        for name in [name for name in registry if name not in names]:
            del registry[name]


@pytest.mark.usefixtures("one_thread", "registries", "trained_once")
@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in NEEDS.get(path.stem, ()):
        pytest.importorskip(package)
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    page = path.read_text()
    for block, printed in run_page(path):
        if block.output is not None:
            start, end = block.output
            where = f"{path.name}:{block.line} prints something else: run `make pictures`"
            assert _words(page[start:end]) == _words(shown(printed)), where
            for told, found in zip(_figures(page[start:end]), _figures(printed), strict=True):
                assert told == pytest.approx(found, abs=NEAR), where


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_every_fence_is_seen(path: Path) -> None:
    """A block that is neither run nor marked would be one that no test has read."""
    page = path.read_text()
    found = blocks(page)
    assert len(re.findall(r"^ *```", page, re.MULTILINE)) == 2 * len(found)
    assert {block.language for block in found} <= LANGUAGES
    marks = re.findall(r"^<!-- not run", page, re.MULTILINE)
    assert len(marks) == sum(block.not_run is not None for block in found)


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_commands_are_understood(path: Path) -> None:
    """Also those that are not run: every verb, flag and number of arguments."""
    for block in blocks(path.read_text()):
        if block.language == "bash":
            for words in block.commands:
                if words[0] == "intarsia":
                    _parse(words[1:], f"{path.name}:{block.line}")


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_pictures_are_told_in_words(path: Path) -> None:
    pictures = re.findall(r"!\[([^]]*)\]\(([^)\s]+)\)", path.read_text())
    for words, name in pictures:
        assert len(words.split()) >= 5, f"{path.name}: say what {name} shows"
        assert (path.parent / name).is_file(), f"{path.name}: there is no {name}"


@pytest.mark.usefixtures("one_thread", "trained_once")
def test_figures_of_the_ideas_count_what_is_there() -> None:
    data = ia.load_data("digits")
    bank = ia.train(data, sparsity=0.95, **{**SETTINGS, "epochs": 5})  # as the pages train it
    modules = [bank[name] for name in "038"]
    used = [(module.state["layers.1.weight"] != 0).any(0) for module in modules]
    shared = int((sum(units.int() for units in used) > 1).sum())
    for svg in (unit_figure({"some": ia.Bank(modules)}), inlay_figure(modules)):
        texts = [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]
        assert any(re.search(rf"\b{shared} of (512|them)", text) for text in texts)
    assert f"{sum(int(units.sum()) for units in used)} units, 0 of them" in svg


def test_outputs_are_compared_by_words_and_figures() -> None:
    """Masks what differs between machines, and nothing else."""
    assert _words("sum 0.9304, 12 s ━━━ 8806954c9d") == _words("sum 0.9310, 9.5 s ━ 1106954c9e")
    assert _words("sum 0.9304") != _words("mean 0.9304")
    assert _figures("sum 0.9304, entropy 2.13 of 2.3026, 0.12345 in 3.2 s") == [0.9304, 2.3026]
    assert _figures("─────\n3 0.9304") == []


def test_a_mark_belongs_to_the_block_below_it() -> None:
    one, two, three = blocks(
        "<!-- not run: why -->\n\n```bash\nrm -r /\n```\n\n"
        "```python\nx = 1\n```\n\n```text\n1\n```\n"
    )
    assert (one.not_run, one.runs, one.commands) == ("why", False, [["rm", "-r", "/"]])
    assert (two.not_run, two.runs, two.line) == (None, True, 8)
    assert (one.output, two.output, three.output) == (None, three.span, None)


def test_every_operator_is_in_the_guide() -> None:
    """With what it works on, its settings, and a star where it looks at samples."""
    text = (DOCS / "guide" / "composing.md").read_text()
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


def _words(printed: str) -> list[str]:
    """What is said, without numbers, digests, rules and the room between."""
    plain = re.sub(r"\b[0-9a-f]{8,}\b|[-+]?\d+(\.\d+)?", "0", printed)
    return re.sub(r"[─━]+", "-", plain).split()


def _figures(printed: str) -> list[float]:
    """Accuracies, entropies and the like: what has three or four decimals.

    Not those of tables, which are of so few samples each that machines disagree.
    """
    if "───" in printed:
        return []
    return [float(text) for text in re.findall(r"(?<![\d.])\d\.\d{3,4}(?!\d)", printed)]


_verbs = cache(lambda: typer.main.get_command(app))


def _parse(words: list[str], where: str) -> None:
    command: Any = _verbs()
    parent = click.Context(command, info_name="intarsia")
    while hasattr(command, "commands"):
        assert words, f"{where}: no verb"
        assert words[0] in command.commands, f"{where}: there is no verb {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    try:
        command.make_context(command.name, list(words), parent=parent)
    except Exception as error:
        pytest.fail(f"{where}: {command.name} {' '.join(words)}: {error}")


def _ticked(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)
