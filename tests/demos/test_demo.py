"""The demo: what its report says is what its files hold."""

import json
import math
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import intarsia as ia
from intarsia.cli.app import app
from intarsia.demos.demo import DemoFindings, demo, next_commands

EPOCHS = 3  # those of the fixture demo_made; the whole demo has 20


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def made(demo_made: tuple[Path, DemoFindings]) -> tuple[Path, DemoFindings]:
    return demo_made


def test_figures_are_those_of_the_files(made: tuple[Path, DemoFindings]) -> None:
    out, result = made
    test = ia.load_data("digits").test
    bank, owners = ia.Bank.load(out / "modules"), ia.Bank.load(out / "territory")
    joint = ia.Bank.load(out / "joint")[0]
    assert [s.name for s in result.modules] == list("0123456789")
    for single, module in zip(result.modules, bank, strict=True):
        score = ia.evaluate(module, test)
        assert (single.accuracy, single.entropy) == (score.accuracy, score.entropy)
        assert single.density == module.density
        assert single.bytes == (out / "modules" / f"{module.name}.safetensors").stat().st_size
    expected: list[Any] = [
        ia.compose(bank, "sum"),
        ia.compose(bank, "inlay"),
        ia.compose(owners, "sum"),
    ]
    accuracies = [ia.evaluate(model, test).accuracy for model in [*expected, joint]]
    assert [row.accuracy for row in result.rows] == accuracies
    assert [row.parameters for row in result.rows] == [m.nonzero for m in [*expected, joint]]
    assert result.ceiling == math.log(10)


def test_modules_are_pruned_by_95_percent(made: tuple[Path, DemoFindings]) -> None:
    for module in ia.Bank.load(made[0] / "modules"):
        weights = [n for n in module.plan if n.endswith("weight")]
        kept = sum(int(module.mask[n].sum()) for n in weights)
        total = sum(module.state[n].numel() for n in weights)
        assert kept / total == pytest.approx(0.05, abs=1e-4)


def test_the_joint_network_has_the_same_shape_and_all_classes(made: tuple[Path, Any]) -> None:
    joint, module = ia.Bank.load(made[0] / "joint")[0], ia.Bank.load(made[0] / "modules")[0]
    assert joint.rewarded == joint.catalogue
    assert joint.architecture == module.architecture
    assert joint.origin == module.origin
    assert joint.density == 1


def test_adding_weights_of_territories_is_adding_logits(made: tuple[Path, DemoFindings]) -> None:
    bank = ia.Bank.load(made[0] / "territory")
    x = ia.load_data("digits").test.x
    with torch.no_grad():
        by_weights, by_logits = ia.compose(bank, "sum")(x), ia.compose(bank, "logits")(x)
    torch.testing.assert_close(by_weights, by_logits, rtol=1e-4, atol=1e-4)


def test_taking_out_and_putting_back(made: tuple[Path, DemoFindings]) -> None:
    out, result = made
    removal, data = result.removal, ia.load_data("digits")
    assert removal.same_bits
    assert removal.accuracy[0] == removal.accuracy[2]
    nine = ia.compose([m for m in ia.Bank.load(out / "modules") if m.name != "3"], "sum")
    score = ia.evaluate(nine, data.test)
    assert removal.accuracy[1] == score.accuracy_per_class[3]
    assert removal.entropy[1] == pytest.approx(score.entropy)
    assert removal.others[1] == score.accuracy
    assert removal.entropy[1] > removal.entropy[0]  # without its module less sure of threes


def test_report_holds_the_figures_and_its_links_resolve(made: tuple[Path, DemoFindings]) -> None:
    out, result = made
    report = (out / "report.md").read_text()
    for row in result.rows:
        assert f"| {row.name} | {row.accuracy:.3f} | {row.parameters:,} |" in report
    for single in result.modules:
        assert f"| {single.name} | {single.accuracy:.3f} | {single.entropy:.3f} |" in report
    links = re.findall(r"\]\(([^)]+)\)", report)
    assert sorted(links) == ["answers.svg", "confusion.svg"]
    assert all((out / link).is_file() for link in links)


def test_a_second_run_reads_the_folder_and_writes_the_same_bytes(
    made: tuple[Path, DemoFindings],
) -> None:
    out, result = made
    files = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    times = {p: p.stat().st_mtime_ns for p in files if p.parent != out}
    run = CliRunner().invoke(app, ["demo", "--out", str(out), "--epochs", str(EPOCHS), "--json"])
    assert run.exit_code == 0, run.stderr
    assert json.loads(run.stdout) == {**result.to_json(), "report": str(out / "report.html")}
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == files
    assert {p: p.stat().st_mtime_ns for p in times} == times  # nothing was trained again


def test_it_prints_tables_and_commands_that_work(made: tuple[Path, DemoFindings]) -> None:
    out, result = made
    run = CliRunner().invoke(app, ["demo", "--out", str(out), "--epochs", str(EPOCHS)])
    assert run.exit_code == 0, run.stderr
    for row in result.rows:
        assert re.search(rf"{re.escape(row.name)}\s+│\s+{row.accuracy:.4f}", run.stdout)
    assert "the same bits" in run.stdout
    commands = next_commands(out)
    assert all(command in run.stdout for command in commands)
    for command in commands:
        verb, *words = shlex.split(command.removeprefix("intarsia "))
        quick = ["--epochs", "1"] if verb == "train" else []
        after = CliRunner().invoke(app, [verb, *words, *quick])
        assert after.exit_code == 0, (command, after.stderr)


def test_its_folder_stands_for_its_modules(made: tuple[Path, DemoFindings], tmp_path: Path) -> None:
    out, result = made
    merged = tmp_path / "merged.safetensors"
    for words in (["inspect", out], ["evaluate", out], ["compose", out, "-o", merged]):
        run = CliRunner().invoke(app, [*map(str, words), "--json"])
        assert run.exit_code == 0, run.stderr
        content = json.loads(run.stdout)
        modules = content.get("modules") or content.get("parts") or content["models"].values()
        assert len(modules) == len(result.modules)
    assert json.loads(run.stdout)["rewarded"] == [module.name for module in result.modules]


def test_it_says_how_to_have_the_command_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from intarsia.cli.train_verbs import _activation

    (tmp_path / "a venv" / "bin").mkdir(parents=True)
    (tmp_path / "a venv" / "bin" / "activate").touch()
    monkeypatch.setattr("sys.prefix", str(tmp_path / "a venv"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _activation() == [". 'a venv/bin/activate'"]
    there = tmp_path / "intarsia"
    there.touch(0o755)
    assert _activation() == []


@pytest.mark.slow
def test_the_whole_demo_joins_well(tmp_path: Path) -> None:
    """Figures of a run on another machine may differ by a few of the 359 samples."""
    result = demo(tmp_path, progress=False)
    assert min(s.accuracy for s in result.modules) > 0.94
    assert min(s.entropy for s in result.modules) > 2.25
    weights, inlay, territory, joint = (row.accuracy for row in result.rows)
    assert weights > 0.91
    assert min(inlay, territory, joint) > 0.94
    assert result.removal.accuracy[1] < 0.1
