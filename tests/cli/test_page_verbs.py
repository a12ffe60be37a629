"""`intarsia report`: pages and figures into files, and how it fails."""

import shutil
from pathlib import Path

import pytest
from command_line import CommandLine

pytestmark = pytest.mark.usefixtures("one_thread")


CLI = CommandLine("report")
ARCHIVE = str(Path(__file__).resolve().parents[2] / "docs" / "results" / "study_pairs.json")


def test_a_page_of_two_modules_with_its_figures(demo_folder: Path, tmp_path: Path) -> None:
    files = [demo_folder / "modules" / f"{digit}.safetensors" for digit in (3, 8)]
    out, drawn = tmp_path / "new" / "pair.html", tmp_path / "drawn"
    options = ["--figures", drawn, "--formats", "svg, svg", "--rows", 100]
    result = CLI.answer(*files, "-o", out, *options)
    assert result["path"] == str(out)
    assert result["bytes"] == out.stat().st_size
    assert sorted(map(Path, result["figures"])) == sorted(drawn.iterdir())
    assert (drawn / "path-loss.svg").read_text().startswith("<svg")
    assert "Two modules trained on digits" in out.read_text()


def test_a_page_with_a_fresh_head(demo_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "three.html"
    CLI.call(demo_folder / "modules" / "3.safetensors", "-o", out, "--rows", 50, "--probe")
    assert 'id="fresh-head"' in out.read_text()


def test_one_module_in_words(demo_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "three.html"
    run = CLI.call(demo_folder / "modules" / "3.safetensors", "-o", out, "--data", "digits")
    assert str(out) in run.stdout
    assert "needs no network" in run.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing"], "no such file or folder"),
        (["nothing", "--formats", "svg,jpg"], "the ending of a figure is one of"),
        ([".", "--study", "pairs"], "no study 'pairs' to show"),
        ([ARCHIVE, "--data", "mnist"], "takes no data: leave data out"),
        ([ARCHIVE, "--rows", "5"], "takes no rows: leave rows out"),
    ],
)
def test_what_it_refuses(words: list[str], said: str, here: Path) -> None:
    assert said in CLI.refusal(*words)
    assert list(here.iterdir()) == []


def test_a_folder_is_no_name_for_a_page(tmp_path: Path) -> None:
    assert "is a folder: name the page" in CLI.refusal(tmp_path, "-o", tmp_path)


def test_a_page_does_not_take_the_place_of_what_it_shows(tmp_path: Path) -> None:
    archive = Path(shutil.copy(ARCHIVE, tmp_path / "pairs.json"))
    before = archive.read_bytes()
    assert "is what is read" in CLI.refusal(archive, "-o", archive)
    assert archive.read_bytes() == before
