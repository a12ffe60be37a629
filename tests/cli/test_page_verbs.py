"""`intarsia report`: pages and figures into files, and how it fails."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from intarsia.cli.app import app

pytestmark = pytest.mark.usefixtures("one_thread")


ARCHIVE = str(Path(__file__).resolve().parents[2] / "docs" / "results" / "study_pairs.json")


def call(*words: object, code: int = 0) -> str:
    run = CliRunner().invoke(app, ["report", *map(str, words)])
    assert run.exit_code == code, (run.stdout, run.stderr, run.exception)
    return run.stdout if code == 0 else run.stderr


def test_a_page_of_two_modules_with_its_figures(demo_folder: Path, tmp_path: Path) -> None:
    files = [demo_folder / "modules" / f"{digit}.safetensors" for digit in (3, 8)]
    out, drawn = tmp_path / "new" / "pair.html", tmp_path / "drawn"
    options = ["--figures", drawn, "--formats", "svg, svg", "--rows", 100, "--json"]
    result = json.loads(call(*files, "-o", out, *options))
    assert result["path"] == str(out)
    assert result["bytes"] == out.stat().st_size
    assert sorted(map(Path, result["figures"])) == sorted(drawn.iterdir())
    assert (drawn / "path-loss.svg").read_text().startswith("<svg")
    assert "Two modules trained on digits" in out.read_text()


def test_one_module_in_words(demo_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "three.html"
    words = call(demo_folder / "modules" / "3.safetensors", "-o", out, "--data", "digits")
    assert str(out) in words
    assert "needs no network" in words


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nothing"], "no such file or folder"),
        (["nothing", "--formats", "svg,jpg"], "the ending of a figure is one of"),
        ([".", "--study", "pairs"], "no study 'pairs' to show"),
        ([ARCHIVE, "--data", "mnist"], "takes no data: leave data out"),
        ([ARCHIVE, "--rows", "5"], "takes no rows: leave rows out"),
    ],
)
def test_what_it_refuses(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = call(*words, code=1)
    assert error.startswith("error: ")
    assert told in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_name_for_a_page(tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["report", str(tmp_path), "-o", str(tmp_path)])
    assert run.exit_code == 1
    assert "is a folder: name the page" in run.stderr
