"""A strictly typed script of a user passes mypy, with the types of the package and not with Any."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import intarsia

SCRIPT = Path(__file__).with_name("users_script.py")


def test_public_names_are_exported_to_type_checkers() -> None:
    tree = ast.parse(Path(intarsia.__file__).read_text())
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    public = {
        alias.asname: node.module
        for node in froms
        for alias in node.names
        if alias.name == alias.asname
    }
    rooms = dict.fromkeys(intarsia._ROOMS, "intarsia")  # not among `import *`: they are large
    assert public == {name: f"intarsia.{home}" for name, home in intarsia._HOME.items()} | rooms
    assert set(intarsia.__all__) == set(public) - set(rooms)
    assert (Path(intarsia.__file__).parent / "py.typed").exists()


@pytest.mark.slow
def test_a_users_script_passes_strict_mypy(tmp_path: Path) -> None:
    """Slow: mypy reads all of torch first."""
    pytest.importorskip("mypy")
    (tmp_path / "script.py").write_text(SCRIPT.read_text())
    (tmp_path / "mypy.ini").write_text("[mypy]\n")
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(intarsia.__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stdout.splitlines()[-1:]) == (
        0,
        ["Success: no issues found in 1 source file"],
    ), run.stdout + run.stderr
