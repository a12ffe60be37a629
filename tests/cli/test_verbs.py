"""How functions become verbs, from inside and from another package."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from intarsia.cli import main, verb
from intarsia.cli.app import main as entry_point
from intarsia.cli.verbs import VerbGroup
from intarsia.errors import DataError

PLUGIN = '''
from intarsia.cli import verb
from intarsia.errors import DataError


@verb("count 3", "count 4 --json")
def count(number: int, json: bool = False) -> None:
    """Count to a number."""
    if number < 0:
        raise DataError(f"the number is {number}: expected 0 or more")
    print(*range(number))
'''


@dataclass(frozen=True)
class Place:
    """A place, by two options of which one has a default."""

    street: Annotated[str, typer.Option(help="Where.")]
    number: Annotated[int, typer.Option("--number", "-n")] = 7


@pytest.fixture
def group() -> typer.Typer:
    group = typer.Typer(cls=VerbGroup)
    group.callback()(lambda: None)
    return group


def test_fields_of_a_dataclass_are_options(group: typer.Typer) -> None:
    @verb("visit Anna --street Elm", group=group)
    def visit(name: str, place: Place, twice: bool = False) -> None:
        """Go there."""
        print(name, place.street, place.number, twice)

    def said(*words: str) -> str:
        run = CliRunner().invoke(group, ["visit", *words])
        return run.stdout if run.exit_code == 0 else f"exit {run.exit_code}"

    assert said("Anna", "--street", "Elm") == "Anna Elm 7 False\n"
    assert said("Anna", "--twice", "-n", "3", "--street", "Elm") == "Anna Elm 3 True\n"
    assert said("Anna") == "exit 2"
    assert "intarsia visit Anna --street Elm" in said("--help")
    visit("Anna", Place("Elm"))  # it is still the function that it was


def test_stopping_tells_which_verbs_resume(group: typer.Typer) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    for name, resumes in (("short", False), ("long", True)):
        stop.__name__ = name
        verb(group=group, resumes=resumes)(stop)
        run = CliRunner().invoke(group, [name])
        assert run.exit_code == 130
        assert ("the same command resumes" in run.stderr) == resumes


def test_errors_of_a_verb_are_one_line(group: typer.Typer) -> None:
    @verb(group=group)
    def fail() -> None:
        raise DataError("there is\nno data")

    run = CliRunner().invoke(group, ["fail"])
    assert (run.exit_code, run.stderr) == (1, "error: there is no data\n")


def test_another_package_adds_a_verb(tmp_path: Path) -> None:
    """An entry point names a module; one that cannot be imported stops nothing else."""
    (tmp_path / "counting_verbs.py").write_text(PLUGIN)
    info = tmp_path / "counting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[intarsia.verbs]\ncount = counting_verbs\nbroken = no_such_module_anywhere\n"
    )
    script = (
        "import sys\nsys.path.insert(0, sys.argv.pop(1))\nfrom intarsia.cli import main\nmain()"
    )

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", script, str(tmp_path), *words]
        return subprocess.run(command, capture_output=True, text=True)

    counted = run("count", "3")
    assert (counted.returncode, counted.stdout) == (0, "0 1 2\n")
    assert "warning: the verb 'broken' of no_such_module_anywhere" in counted.stderr
    assert "Count to a number." in run("--help").stdout
    failed = run("count", "--", "-1")
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1] == "error: the number is -1: expected 0 or more"


def test_the_entry_point_is_exported() -> None:
    assert main is entry_point
