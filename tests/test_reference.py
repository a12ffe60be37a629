"""Every public name is on a page of the reference, with words about it."""

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "intarsia"
PAGES = ROOT / "docs" / "reference"
ROOMS = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))
# A directive of mkdocstrings, and the lines below it that belong to it.
DIRECTIVE = re.compile(r"^::: (?P<name>\S+)\n(?P<options>(?:[ ]+.*\n|\n(?=[ ]))*)", re.MULTILINE)


@pytest.fixture(scope="module")
def shown() -> dict[int, str]:
    """What the pages show, by identity, and where."""
    result = {}
    for page in sorted(PAGES.glob("*.md")):
        for module, name in _listed(page):
            value = getattr(module, name)
            if _is_described(value) or _told(module, name):
                result[id(value)] = page.name
    return result


@pytest.mark.parametrize("room", ["", *ROOMS])
def test_every_public_name_is_in_the_reference(room: str, shown: dict[int, str]) -> None:
    package = import_module(f"intarsia.{room}".strip("."))
    missing = [name for name in package.__all__ if id(getattr(package, name)) not in shown]
    assert not missing, f"no page of docs/reference shows these names of {package.__name__}"


def test_every_page_is_in_the_index() -> None:
    index = (PAGES / "index.md").read_text()
    for page in PAGES.glob("*.md"):
        assert page.name == "index.md" or f"]({page.name})" in index, page.name


def _listed(page: Path) -> Iterator[tuple[ModuleType, str]]:
    """The names that the directives of a page ask for."""
    for directive in DIRECTIVE.finditer(page.read_text() + "\n"):
        module = import_module(directive["name"])
        options = (yaml.safe_load(directive["options"]) or {}).get("options", {})
        own = [name for name, value in vars(module).items() if _is_own(name, value, module)]
        for name in options.get("members", getattr(module, "__all__", own)):
            assert hasattr(module, name), f"{page.name}: {module.__name__} has no {name}"
            yield module, name


def _is_own(name: str, value: object, module: ModuleType) -> bool:
    home = getattr(value, "__module__", None) if _is_described(value) else module.__name__
    return not name.startswith("_") and not inspect.ismodule(value) and home == module.__name__


def _is_described(value: object) -> bool:
    """Whether it has a docstring of its own; constants have their type's."""
    return bool((inspect.isroutine(value) or inspect.isclass(value)) and inspect.getdoc(value))


def _told(module: ModuleType, name: str) -> bool:
    """Whether a constant or an operator is set or defined here with words below it."""
    tree = ast.parse(inspect.getsource(module)).body
    for node, after in zip(tree, [*tree[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.get_docstring(node) is not None
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        if any(isinstance(t, ast.Name) and t.id == name for t in targets):
            return isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    imported = [n for n in tree if isinstance(n, ast.ImportFrom) and n.module]
    homes = [n.module for n in imported if any((a.asname or a.name) == name for a in n.names)]
    return any(_told(import_module(home), name) for home in homes if home)
