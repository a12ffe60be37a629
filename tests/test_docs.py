"""The examples of the docs run from top to bottom and print what stands below them."""

import inspect
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import typer

import intarsia as ia
import intarsia.training
from examples import blocks, difference, link_clone, run_page
from ideas import SETTINGS
from ideas_maps import inlay_figure, unit_figure
from intarsia.cli.app import app
from intarsia.composition.operators.registry import Operator
from intarsia.files import digest_of

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
WRITTEN = sorted(
    path for folder in (DOCS, DOCS / "guide", DOCS / "howto") for path in folder.glob("*.md")
)
ALL = [*WRITTEN, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PAGES = [path for path in ALL if any(block.runs for block in blocks(path.read_text()))]
NEEDS = {"export": ("onnx", "onnxscript", "onnxruntime"), "probe": ("peft",)}
LANGUAGES = {"python", "bash", "text", "yaml", "mermaid"}
TABLE = """rewarded accuracy 0.9503, entropy 2.13 of 2.30, 359 samples
┃ class ┃ accuracy ┃
┡━━━━━━━╇━━━━━━━━━━┩
│ * 0   │   0.9722 │
threes refused: 78%, 14069 weights, (450, 64)
 mlp(32)   yes   0.9981 (0.0021)   234.4 (31.6)   -0.0102‡
1 cell, 1.5 s, of 8806954ccc23025a
"""
NEAR = {  # what other machines may print instead
    "0.9503": "0.9310", "2.13": "2.15", "0.9722": "0.9167", "14069": "14068", "78%": "81%",
    "234.4": "240.0", "1.5 s": "12 s", "8806954ccc23025a": "908e6cb0e87d9a60", "━━━╇": "━╇",
}  # fmt: skip
FAR = {
    "0.9503": "0.8600", "2.13": "0.01", "2.30": "2.3", "359": "300", "0.9722": "0.8889",
    "* 0": "* 1", "78%": "3%", "14069": "1", "(450": "(64", "64)": "64]", "mlp(32)": "mlp(33)",
    "0.9981": "0.9600", "(0.0021)": "(0.0500)", "234.4": "200.0", "-0.0102‡": "-0.0102",
    "0102": "1102", "1 cell": "2 cells", "yes": "no", " yes ": " ", "1.5 s": "1.5 m",
    "threes refused: 78%,": "", "1 cell, 1.5 s, of 8806954ccc23025a\n": "",
}  # fmt: skip


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
        words = {k: str(v) for k, v in given.items()}
        other = {k: v for k, v in words.items() if v != str(getattr(ia.Recipe, k, None))}
        key = digest_of([data.digest, other])  # what is set to its default trains the same bank
        bank = train(data, out=banks / key, **given)
        if out is None:
            return bank
        shutil.copytree(banks / key, out)
        return train(data, out=out, **given)

    monkeypatch.setattr(intarsia.training, "train", once)


@pytest.mark.usefixtures("one_thread", "trained_once")
@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in NEEDS.get(path.stem, ()):
        pytest.importorskip(package)
    link_clone(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INTARSIA_DATA", raising=False)  # pages promise to need no download
    page = path.read_text()
    for block, printed in run_page(path):
        if block.output is not None:
            start, end = block.output
            result = difference(page[start:end], printed)
            where = f"{path.name}:{block.line} tells something else: run `make pictures`"
            assert result is None, f"{where} ({result})"


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_every_fence_is_seen(path: Path) -> None:
    """A block that is neither run nor marked would be one that no test has read."""
    page = path.read_text()
    result = blocks(page)
    assert len(re.findall(r"^ *```", page, re.MULTILINE)) == 2 * len(result)
    assert {block.language for block in result} <= LANGUAGES
    marks = re.findall(r"^<!-- not run", page, re.MULTILINE)
    assert len(marks) == sum(block.not_run is not None for block in result)


def test_what_a_reader_tries_first_is_run() -> None:
    for path in (ROOT / "README.md", DOCS / "index.md", DOCS / "tutorial.md"):
        first = next(b for b in blocks(path.read_text()) if b.language == "python")
        assert first.runs
        assert path in PAGES


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
    for figure in (unit_figure({"some": ia.Bank(modules)}), inlay_figure(modules)):
        texts = [ax.get_title("right") for ax in figure.axes]
        assert any(re.search(rf"\b{shared} of (512|them)", text) for text in texts)
    assert f"{sum(int(units.sum()) for units in used)} units, 0 of them" in texts[-1]


def test_outputs_may_differ_as_machines_do() -> None:
    assert difference(TABLE, TABLE.replace("\n", "   \n")) is None
    for told, printed in NEAR.items():
        assert told in TABLE
        assert difference(TABLE, TABLE.replace(told, printed)) is None, (told, printed)


@pytest.mark.parametrize(("told", "printed"), FAR.items())
def test_outputs_that_say_something_else_are_found(told: str, printed: str) -> None:
    assert told in TABLE
    for one, two in ((told, printed), (printed, told)):
        assert difference(TABLE.replace(told, one), TABLE.replace(told, two)) is not None


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
