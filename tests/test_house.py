"""What holds for the house as a whole: directions, names, light imports, one version, no pickle."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType, ModuleType
from urllib.parse import unquote

import numpy
import pytest

import import_graph
import intarsia

ROOT = Path(__file__).resolve().parents[1]
HOUSE = ROOT / "src" / "intarsia"
HEAVY = ("torch", "sklearn", "matplotlib")
MAIN = "from intarsia.cli.app import main; main()"
NEVER = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
NEVER_CALLED = {"torch.load", "torch.save", "torch.serialization", "numpy.load", "np.load"}
# A room imports from lines above its own, and from its own.
ORDER = """
    errors
    limits files process
    parsing
    specs
    locks
    objectives models
    encoders
    data
    pruning modules
    training composition plots
    measure
    flow graphs lens sweetspot
    estimator hub card exports
    studies
    artifacts
    reports
    studio demos
    cli
"""
NOT_ROOMS = {"browser", "foreign", "typing"}  # tests of the whole, which mirror no room


@cache
def sources() -> dict[str, ast.Module]:
    """Parsed by the process that runs these tests, and not by all that collect them."""
    return {str(p.relative_to(HOUSE)): import_graph.parsed(p) for p in HOUSE.rglob("*.py")}


def test_rooms_import_only_what_comes_before() -> None:
    lines = [set(line.split()) for line in ORDER.strip().splitlines()]
    level = {room: place for place, rooms in enumerate(lines) for room in rooms}
    rooms = import_graph.imports()
    unknown = sorted(rooms.keys() - level.keys())
    assert not unknown, f"give these rooms a place in ORDER: {unknown}"
    back = [
        f"{file} imports {other}"
        for room, others in rooms.items()
        for other, file in others
        if level.get(other, len(lines)) > level[room]
    ]
    assert not back, "\n".join(sorted(back))


def test_the_drawn_graph_is_that_of_the_code() -> None:
    page = import_graph.PAGE.read_text()
    assert import_graph.page() == page, "run `python docs/build/import_graph.py`"
    assert page.count(" --> ") > 10


def test_typer_and_the_command_line_are_used_in_cli_alone() -> None:
    users = [
        f"{name} imports {module}"
        for name in sources()
        if not name.startswith("cli/") and name != "__main__.py"
        for module in import_graph.imported(HOUSE / name)
        if f"{module}.".startswith(("typer.", "click.", "intarsia.cli."))
    ]
    assert not users


def test_source_never_unpickles() -> None:
    offenders = []
    for name, tree in sources().items():
        modules = set(import_graph.imported(HOUSE / name))
        bad = {m for m in modules if m.split(".")[0] in NEVER} | modules & NEVER_CALLED
        offenders += [f"{name} imports {module}" for module in bad]
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (called := ast.unparse(node.func)) in NEVER_CALLED:
                given = {k.arg: ast.unparse(k.value) for k in node.keywords}
                tensors_alone = called == "torch.load" and given.get("weights_only") == "True"
                arrays_alone = called.startswith("n") and given.get("allow_pickle") == "False"
                if not tensors_alone and not arrays_alone:
                    offenders.append(f"{name}:{node.lineno} calls {called}")
    assert not offenders


def test_every_file_says_what_it_holds() -> None:
    assert not [name for name, tree in sources().items() if not ast.get_docstring(tree)]


def test_no_two_files_share_a_name() -> None:
    places = defaultdict(list)
    for name in sources():
        places[Path(name).name].append(name)
    shared = {n: sorted(p) for n, p in places.items() if len(p) > 1 and not n.startswith("__")}
    assert not shared, shared


def test_no_two_public_classes_share_a_name() -> None:
    places = defaultdict(list)
    for name, tree in sources().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    shared = {n: sorted(p) for n, p in places.items() if len(p) > 1}
    assert not shared, shared


def test_tests_lie_in_rooms_that_exist() -> None:
    folders = {path.parent.relative_to(ROOT / "tests") for path in _tests()}
    mirrored = {folder for folder in folders if folder.parts and folder.parts[0] not in NOT_ROOMS}
    assert len(mirrored) > 10
    assert not sorted(str(folder) for folder in mirrored if not (HOUSE / folder).is_dir())


def test_import_is_light() -> None:
    assert _heavy_and_printed("import intarsia") == ([], "")


def test_help_is_light_and_names_every_verb() -> None:
    heavy, shown = _heavy_and_printed(f"sys.argv = ['intarsia', '--help']; {MAIN}")
    assert heavy == []
    verbs = (
        "demo data train compose operators evaluate compatibility path probe compact export "
        "inspect report studio study sweetspot flow graphs lens"
    )
    assert not [verb for verb in verbs.split() if not re.search(rf"\b{verb}\b", shown)]


def test_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert intarsia.__version__ == project["version"]
    assert f"## {project['version']}" in (ROOT / "CHANGELOG.md").read_text()


def test_public_names_resolve_and_are_documented() -> None:
    values = {name: getattr(intarsia, name) for name in intarsia.__all__ if name[:2] != "__"}
    described = {n: v for n, v in values.items() if inspect.ismodule(v) or callable(v)}
    assert len(described) > 20
    assert not [name for name, v in described.items() if not (inspect.getdoc(v) or "").strip()]


def test_public_names_stay_after_their_rooms_are_imported() -> None:
    """A room named like one of them would hide it once it is imported."""
    rooms = [path.parent.name for path in HOUSE.glob("*/__init__.py")]
    for room in rooms:
        importlib.import_module(f"intarsia.{room}")
    assert not {*rooms, *(path.stem for path in HOUSE.glob("*.py"))} & {*intarsia.__all__}
    values = {name: getattr(intarsia, name) for name in intarsia.__all__}
    assert not [name for name, value in values.items() if isinstance(value, ModuleType)]


def test_a_room_that_is_public_as_a_whole_comes_with_its_first_use() -> None:
    shown = "import intarsia; print('intarsia.sweetspot' in sys.modules, len(dir(intarsia)) > 20)"
    used = "print(intarsia.sweetspot.load().name, 'sweetspot' in dir(intarsia))"
    assert _heavy_and_printed(f"{shown}; {used}")[1].split() == ["False", "True", "totem", "True"]


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        intarsia.no_such_name  # noqa: B018


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_relative_links_resolve(name: str) -> None:
    text = re.sub(r"^```.*?^```", "", (ROOT / name).read_text(), flags=re.S | re.M)
    links = re.findall(r"\]\(([^)\s]+)", text) + re.findall(r"(?:src|href)=\"([^\"]+)\"", text)
    relative = [x for x in links if not re.match(r"[a-z]+:|#", x)]
    missing = [x for x in relative if not (ROOT / unquote(x.split("#")[0])).exists()]
    assert not missing, f"{name} links to what is not there: {missing}"


def test_what_contributing_names_is_there() -> None:
    """Its files, and the tests that show how each addition is made."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"`((?:tests|src|docs|benchmarks|recipes|\.ci)/[\w./]*)", text)
    assert len(paths) > 10
    assert not [path for path in paths if not (ROOT / path).exists()]
    for path, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
        assert f"def {test}(" in (ROOT / path).read_text(), f"{path} has no {test}"


@pytest.mark.usefixtures("one_thread")
def test_a_sample_goes_the_way_that_contributing_describes() -> None:
    """Each function named there is in its file and is called, one after another."""
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("## The way of a sample")[2]
    steps = re.findall(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`", text, re.MULTILINE)
    assert 8 <= len({file for file, _ in steps}) <= 12
    calls: dict[tuple[str, str], int] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        file, code = frame.f_code.co_filename, frame.f_code
        if event == "call" and file.startswith(f"{HOUSE}/"):
            calls.setdefault((file.removeprefix(f"{HOUSE}/"), code.co_qualname), len(calls))

    for name in ("load_data", "train", "compose", "evaluate"):
        getattr(intarsia, name)  # imported now, so that the imports are not watched
    x, y = numpy.eye(40, dtype="float32"), numpy.arange(40) % 4
    sys.setprofile(note)
    try:
        data = intarsia.load_data(x, y)
        bank = intarsia.train(data, model="mlp(8)", epochs=1, engine="stack", progress=False)
        bank[0].to_module()
        intarsia.evaluate(intarsia.compose(bank, "sum"), data.test)
    finally:
        sys.setprofile(None)
    assert not [step for step in steps if step not in calls]
    assert steps == sorted(steps, key=calls.__getitem__)


def _tests() -> Iterator[Path]:
    return (ROOT / "tests").rglob("test_*.py")


def _heavy_and_printed(code: str) -> tuple[list[str], str]:
    """The heavy packages that a fresh interpreter holds after running the code, and its output."""
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
    printed, _, heavy = run.stdout.rpartition("HEAVY")
    return heavy.split(), printed
