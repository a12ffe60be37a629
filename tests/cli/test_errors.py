"""How every verb fails for machines, and on terminals that have few letters."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import intarsia as ia
from intarsia.cli.app import app
from intarsia.cli.verbs import study

FAILS = {  # what makes each verb fail by an error of ours
    "demo": ["--out", "file", "--epochs", "1"],
    "data": ["mnits"],
    "train": ["out", "--model", "mpl"],
    "compose": ["nowhere", "-o", "x"],
    "evaluate": ["nowhere"],
    "compatibility": ["nowhere"],
    "path": ["nowhere", "nowhere"],
    "probe": ["nowhere"],
    "compact": ["nowhere", "-o", "x"],
    "export": ["nowhere", "-o", "x.onnx"],
    "inspect": ["nowhere"],
    "report": ["nowhere"],
    "studio": ["nowhere"],
    "study list": ["nothing"],
    "study run": ["nothing"],
    "study status": ["nothing"],
    "study table": ["nothing"],
    "study figure": ["nothing", "-o", "x.svg"],
    "study archive": ["nothing", "-o", "x.json"],
    "study restore": ["nowhere.json"],
}
WITHOUT = {"operators"}  # which cannot fail


def run(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def error(said: str) -> dict[str, str]:
    result = json.loads(said)
    assert set(result) == {"error"}
    assert set(result["error"]) == {"type", "message"}
    return result["error"]


def test_every_verb_is_here() -> None:
    verbs = {command.name for command in app.registered_commands}
    verbs |= {f"study {command.name}" for command in study.registered_commands}
    assert verbs == set(FAILS) | WITHOUT


@pytest.mark.parametrize("verb", FAILS)
def test_errors_are_json_under_json(verb: str, here: Path) -> None:
    (here / "file").touch()
    words = [*verb.split(), *FAILS[verb]]
    for_people = run(*words)
    for_machines = run(*words, "--json")
    assert for_people.exit_code == for_machines.exit_code == 1
    assert for_people.stderr.splitlines()[-1].startswith("error: ")
    told = error(for_machines.stdout)
    assert f"error: {told['message']}" == for_people.stderr.splitlines()[-1]
    assert issubclass(getattr(ia.errors, told["type"]), ia.IntarsiaError)
    assert "error" not in for_machines.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "out", "--epoch", "3", "--json"], "No such option"),
        (["train", "out", "--epochs", "x", "--json"], "Invalid value for '--epochs'"),
        (["train", "--json"], "the folder is missing"),
        (["compose", "modules", "--json"], "Missing option"),
        (["study", "run", "--json"], "Missing argument"),
        (["trian", "--json"], "No such command"),
        (["--json"], "No such option"),
    ],
)
def test_wrong_usage_is_json_with_exit_code_2(words: list[str], said: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert said in error(result.stdout)["message"]
    assert result.stderr == ""


def test_whoever_stops_reading_sees_no_traceback() -> None:
    script = "import sys; sys.argv[0] = 'intarsia'; from intarsia.cli.app import main; main()"
    command = [sys.executable, "-c", script, "study", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
@pytest.mark.parametrize("words", [["operators"], ["operators", "--json"], ["--help"]])
def test_a_full_disk_is_one_line(words: list[str]) -> None:
    command = [sys.executable, "-m", "intarsia", *words]
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert run.returncode == 1
    assert run.stderr.startswith("error: ")
    assert run.stderr.count("\n") == 1


def test_ctrl_c_while_it_ends_shows_no_traceback() -> None:
    script = (
        "import atexit, os, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        "import sys; sys.argv = ['intarsia', '--version']\n"
        "from intarsia.cli.app import main; main()"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.stdout.startswith("intarsia ")
    assert run.stderr == ""


def test_stopping_is_json_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("intarsia.training.train", stopped)
    result = run("train", str(tmp_path / "out"), "--json")
    assert result.exit_code == 130
    assert error(result.stdout)["message"] == "stopped; the same command resumes"


def test_a_lone_json_after_two_dashes_is_a_path() -> None:
    result = run("inspect", "--", "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "error: " in result.stderr


def test_a_terminal_without_unicode_gets_escapes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = ["grün", "日本"]
    np.savez(tmp_path / "own.npz", x=rng.random((60, 4)), y=[0, 1] * 30, classes=names)
    bank = ia.train(
        tmp_path / "own.npz", model="mlp(4)", epochs=1, sparsity=0.5, out=tmp_path / "bank",
        progress=False,
    )  # fmt: skip
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    environment |= {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    script = (
        "import sys\nfrom intarsia.cli.app import app\n"
        "for words in sys.argv[1:]:\n"
        "    try:\n        app(words.split('|'), prog_name='intarsia')\n"
        "    except SystemExit as stop:\n        print('CODE', stop.code)\n"
    )
    place = str(tmp_path / "bank")
    commands = [
        f"evaluate|{place}|--confusion",
        f"inspect|{place}",
        f"data|{tmp_path / 'own.npz'}",
        f"evaluate|{place}|--rewarded|x",
        f"inspect|{place}|--json",
    ]
    result = subprocess.run(
        [sys.executable, "-c", script, *commands], env=environment, capture_output=True
    )
    text, said = result.stdout.decode("ascii"), result.stderr.decode("ascii")
    assert "Traceback" not in said, said
    *parts, last, _ = text.split("CODE ")
    assert [part.split("\n")[0] for part in parts[1:]] + [last[0]] == ["0", "0", "0", "1"]
    assert "gr\\xfcn" in parts[0]
    assert "gr\\xfcn" in said  # the classes there are, after an unknown one
    found_json = json.loads(last[1:])
    assert [module["name"] for module in found_json["modules"]] == list(bank.names)


def figure_options(group: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[list[str], str]]:
    """The words of every verb that draws to a file, and the option for it."""
    context = typer.Context(group)
    for name in group.list_commands(context):
        command, words = group.get_command(context, name), (*before, name)
        if hasattr(command, "list_commands"):
            yield from figure_options(command, words)
            continue
        needed = sum(own.param_type_name == "argument" and own.required for own in command.params)
        for own in command.params:
            if ".svg, .pdf or .png" in (getattr(own, "help", None) or ""):
                yield [*words, *["nowhere"] * needed], own.opts[0]


def test_figures_that_cannot_be_written_are_refused_before_all_else(here: Path) -> None:
    (here / "folder.svg").mkdir()
    options = list(figure_options(typer.main.get_command(app)))
    assert {"evaluate", "path", "graphs", "sweetspot", "flow", "lens"} <= {w[0] for w, _ in options}
    for words, option in options:
        for name, said in (("x.jpg", "one of .svg, .pdf, .png"), ("folder.svg", "not a file")):
            result = run(*words, option, name)
            assert result.exit_code == 1, (words, result.stdout, result.stderr)
            assert said in result.stderr, words
