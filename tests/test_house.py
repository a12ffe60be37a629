"""What holds for the house as a whole: light imports, one version, documented names, no pickle."""

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest

import intarsia

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
HEAVY = ("torch", "sklearn", "matplotlib")
MAIN = "from intarsia.cli.app import main; main()"
NEVER = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
NEVER_BARE = {"torch.load", "torch.save", "torch.serialization", "numpy.load"}

GROUND = {"errors", "specs", "files"}
# Nothing later is imported by anything earlier; rooms that are not named here stand above all.
MAY_IMPORT = {
    "errors": set(),
    "specs": {"errors"},
    "files": {"errors"},
    "data": GROUND,
    "models": GROUND | {"data"},
    "objectives": GROUND,
    "pruning": GROUND | {"data", "models"},
    "modules": GROUND | {"data", "models"},
    "measure": GROUND | {"plots", "data", "models", "objectives", "modules"},
    "composition": GROUND | {"data", "models", "objectives", "modules"},
    "plots": GROUND | {"objectives", "composition"},
    "training": GROUND | {"data", "models", "objectives", "pruning", "modules", "measure"},
    "studies": GROUND
    | {"plots", "data", "models", "objectives", "pruning", "modules", "measure"}
    | {"composition", "training", "__version__"},
    "reports": GROUND
    | {"plots", "data", "models", "objectives", "pruning", "modules", "measure"}
    | {"composition", "training", "studies"}
    | {"artifacts", "__version__"},
    "artifacts": GROUND | {"data", "models", "modules", "composition", "hub"},
    "studio": GROUND
    | {"plots", "data", "models", "objectives", "modules", "measure", "composition"}
    | {"artifacts"},
}


def test_import_is_light() -> None:
    assert _heavy_after("import intarsia") == []


def test_help_is_light() -> None:
    assert _heavy_after(f"sys.argv = ['intarsia', '--help']; {MAIN}") == []


def test_help_names_every_verb() -> None:
    run = subprocess.run(
        [sys.executable, "-c", MAIN, "--help"], capture_output=True, text=True, check=True
    )
    for verb in (
        "demo",
        "data",
        "train",
        "compose",
        "operators",
        "evaluate",
        "compatibility",
        "path",
        "compact",
        "export",
        "inspect",
        "report",
        "studio",
        "study",
    ):
        assert re.search(rf"\b{verb}\b", run.stdout), verb


def test_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert intarsia.__version__ == project["version"]
    assert f"## {project['version']}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("name", [n for n in intarsia.__all__ if not n.startswith("__")])
def test_public_name_resolves_and_is_documented(name: str) -> None:
    value = getattr(intarsia, name)
    if inspect.ismodule(value) or callable(value):
        assert (inspect.getdoc(value) or "").strip()


def test_public_names_stay_after_their_rooms_are_imported() -> None:
    """A room named like one of them would hide it once it is imported."""
    script = """
import importlib, pathlib, types, intarsia
for room in pathlib.Path(intarsia.__file__).parent.iterdir():
    if (room / "__init__.py").exists():
        importlib.import_module(f"intarsia.{room.name}")
for name in intarsia.__all__:
    value = getattr(intarsia, name)
    if isinstance(value, types.ModuleType) and not callable(value):
        print(name)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout == ""


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        intarsia.no_such_name  # noqa: B018


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT / "src")))
def test_rooms_import_only_what_comes_before(path: Path) -> None:
    room = path.relative_to(ROOT / "src" / "intarsia").parts[0].removesuffix(".py")
    if room in MAY_IMPORT:
        modules = set().union(*(_modules(node) for node in ast.walk(ast.parse(path.read_text()))))
        rooms = {m.split(".")[1] for m in modules if m.startswith("intarsia.")}
        assert rooms <= MAY_IMPORT[room] | {room}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT / "src")))
def test_source_never_unpickles(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        imported = _modules(node)
        packages = {name.split(".")[0] for name in imported}
        assert not packages & NEVER, f"{path} imports {packages & NEVER}"
        assert not imported & NEVER_BARE, f"{path} imports {imported & NEVER_BARE}"
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in {"torch.load", "torch.save"}, (
                f"{path}:{node.lineno} calls {called}"
            )
            if called in {"np.load", "numpy.load"}:
                allowed = {k.arg: ast.unparse(k.value) for k in node.keywords}
                assert allowed.get("allow_pickle") == "False", f"{path}:{node.lineno}"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_relative_links_resolve(name: str) -> None:
    text = re.sub(r"^```.*?^```", "", (ROOT / name).read_text(), flags=re.S | re.M)
    links = re.findall(r"\]\(([^)\s]+)", text) + re.findall(r"(?:src|href)=\"([^\"]+)\"", text)
    relative = [x for x in links if not re.match(r"[a-z]+:|#", x)]
    missing = [x for x in relative if not (ROOT / unquote(x.split("#")[0])).exists()]
    assert not missing, f"{name} links to what is not there: {missing}"


def _heavy_after(code: str) -> list[str]:
    """The heavy packages that a fresh interpreter holds after running the code."""
    script = f"""
import sys
try:
    {code}
except SystemExit as stop:
    assert not stop.code, stop.code
print("HEAVY", *[name for name in {HEAVY!r} if name in sys.modules])
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()[-1].split()[1:]


def _modules(node: ast.AST) -> set[str]:
    """Full names of the modules that an import statement names."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: imports are written in full here"
        return {f"{node.module}.{alias.name}" for alias in node.names}
    return set()
