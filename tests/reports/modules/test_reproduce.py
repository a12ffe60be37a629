"""The commands at the end of a page: each is one that `intarsia` takes, and they work."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import intarsia as ia
from intarsia.cli.app import app

from ..reading import lines, part, words

pytestmark = pytest.mark.usefixtures("one_thread")


def parsed(html: str) -> list[list[str]]:
    """The words of every line, after its verb's own options have taken them."""
    verbs: Any = typer.main.get_command(app)
    result = [shlex.split(line) for line in lines(html)]
    for program, verb, *given in result:
        assert program == "intarsia"
        verbs.commands[verb].make_context(verb, list(given))
    return [line[1:] for line in result]


def by_verb(html: str) -> dict[str, list[list[str]]]:
    result: dict[str, list[list[str]]] = {}
    for verb, *given in parsed(html):
        result.setdefault(verb, []).append(given)
    return result


def test_those_of_a_bank_run(
    two_seeds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    html = ia.report(two_seeds, rows=200).html
    result = parsed(html)
    assert [line[0] for line in result] == [
        *("train", "evaluate", "compose", "evaluate", "compose", "evaluate"),
        *("compatibility", "path", "report"),
    ]
    for line in result:
        run = CliRunner().invoke(app, line)
        assert run.exit_code == 0, (line, run.stderr, run.exception)
    assert Path("report.html").read_text() == html
    same = ia.Bank.load("reproduced")
    assert [m.digest for m in same] == [m.digest for m in ia.Bank.load(two_seeds)]
    ia.compose(ia.Bank.load(two_seeds).seed(0), "sum").save("expected.safetensors")
    assert Path("sum.safetensors").read_bytes() == Path("expected.safetensors").read_bytes()


def test_settings_that_were_chosen_for_the_data_are_those_of_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bank = ia.train("digits", out="bank", epochs=1, partition=[["0"], ["1"]], progress=False)
    (line,) = by_verb(ia.report("bank", rows=50).html)["train"]
    run = CliRunner().invoke(app, ["train", *line])
    assert run.exit_code == 0, run.stderr
    assert [m.digest for m in ia.Bank.load("reproduced")] == [m.digest for m in bank]


def test_those_of_one_module_join_nothing(two_seeds: Path, tmp_path: Path) -> None:
    bank = ia.Bank.load(two_seeds)
    ia.Bank(list(bank)[:1]).save(tmp_path / "one")
    result = by_verb(ia.report(tmp_path / "one").html)
    assert list(result) == ["train", "evaluate", "report"]
    assert result["evaluate"] == [[str(tmp_path / "one"), "--data", "digits"]]


def test_those_of_two_files(two_seeds: Path) -> None:
    files = [two_seeds / f"{name}-s0.safetensors" for name in (0, 1)]
    both = list(map(str, files))
    result = by_verb(ia.report(files, "digits", rows=50).html)
    assert result["compose"] == [
        [*both, "--operator", o, "-o", f"{o}.safetensors"] for o in ("sum", "logits")
    ]
    alone = [path for path, *_ in result["evaluate"][:2]]
    assert alone == both
    assert result["compatibility"] == [[*both, "--samples", "digits"]]
    assert result["path"] == [[*both, "--data", "digits", "--rows", "1000"]]
    tail = ["-o", "report.html", "--figures", "figures/", "--data", "digits", "--rows", "50"]
    assert result["report"] == [[*both, *tail]]


@pytest.mark.parametrize(
    ("operator", "options", "flags"),
    [
        ("logits", {"calibrate": True}, ["--calibrate", "--samples", "digits"]),
        ("sum", {"align": "activations"}, ["--align", "activations", "--samples", "digits"]),
        ("sum", {"recalibrate": False}, ["--no-recalibrate", "--samples", "digits"]),
    ],
)
def test_those_of_a_composition(
    operator: str, options: dict[str, Any], flags: list[str], two_seeds: Path, tmp_path: Path
) -> None:
    modules = ia.Bank.load(two_seeds).seed(0)[:2]
    file = tmp_path / "a whole.safetensors"
    merged = ia.compose(modules, operator, samples=ia.load_data("digits"), **options)
    merged.save(file)
    result = by_verb(ia.report(file, rows=50).html)
    (line,) = result["compose"]
    assert line == [str(file), "--operator", operator, *flags, "-o", "whole.safetensors"]
    out = tmp_path / "whole.safetensors"
    run = CliRunner().invoke(app, ["compose", *line[:-1], str(out)])
    assert run.exit_code == 0, run.stderr
    assert out.read_bytes() == file.read_bytes()


@pytest.mark.parametrize("load", [str, ia.load_data])
def test_data_of_ones_own(load: Callable[[str], Any], tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(60, 4)).astype(np.float32), np.arange(60) % 3
    np.savez(tmp_path / "my data.npz", x=x, y=y)
    source = str(tmp_path / "my data.npz")
    settings: dict[str, Any] = {"model": "mlp(4)", "epochs": 1, "rounds": 0, "progress": False}
    ia.train(load(source), out=tmp_path / "bank", **settings)
    html = ia.report(tmp_path / "bank", None if load is str else ia.load_data(source)).html
    result = by_verb(html)
    named = source if load is str else "DATA.npz"
    assert {given[given.index("--data") + 1] for given in result["evaluate"]} == {named}
    assert result["compatibility"][0][-2:] == ["--samples", named]
    assert ("DATA.npz stands for a file" in words(part(html, "reproduce"))) == (load is not str)
    assert result["train"][0][2:] == ([] if load is str else ["--data", "DATA.npz"])
