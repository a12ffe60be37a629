"""A dead bank, made on purpose, is reported wherever somebody may look: in seven channels."""

import json
import re
import warnings
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import intarsia as ia
from intarsia.cli.app import app
from intarsia.composition.module_paths import header_of
from intarsia.errors import HealthWarning
from intarsia.modules import Health

DEAD = {
    "preset": "paper",  # its pruning, of all layers together, leaves the first without a weight
    "data": "digits",
    "model": "mlp(8)",
    "sparsity": 0.999,
    "rounds": 1,
    "epochs": 1,
}
WELL = {**DEAD, "model": "mlp(64)", "sparsity": 0.5, "epochs": 12, "learning_rate": 0.01}
FLAGS = [word for key, value in DEAD.items() for word in (f"--{key}", str(value))]
SAID = "no weight of layers.0.weight survives, so it answers the same to every input"
NOT_HEALTHY = 3

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(digits: ia.Data, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bank whose modules answer the same to every input, as a run leaves it, and its whole."""
    folder = tmp_path_factory.mktemp("dead") / "bank"
    bank = ia.train(digits, **_settings(DEAD), out=folder, progress=False)
    ia.compose(bank, "logits").save(folder.parent / "whole.safetensors")
    return folder


@pytest.fixture(scope="module")
def well(digits: ia.Data, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two modules that are as they should be, and their whole."""
    folder = tmp_path_factory.mktemp("well") / "bank"
    settings = {**_settings(WELL), "partition": [["0"], ["1"]]}
    bank = ia.train(digits, **settings, out=folder, progress=False)
    ia.compose(bank, "logits").save(folder.parent / "whole.safetensors")
    return folder


def test_1_python_warns_once_a_call_and_counts_what_it_does_not_name(
    digits: ia.Data, folder: Path
) -> None:
    calls = {
        "train": lambda: ia.train(digits, **_settings(DEAD), out=folder, progress=False),
        "load": lambda: ia.Bank.load(folder),
        "compose": lambda: ia.compose(ia.Bank.load(folder, quiet=True), "logits"),
        "load composition": lambda: ia.Composition.load(folder.parent / "whole.safetensors"),
    }
    for name, call in calls.items():
        caught = _warnings(call)
        assert len(caught) == 1, name
        assert Path(caught[0].filename) == Path(__file__), name  # the line of the caller
        assert re.search(r"dead: '\w+', '\w+', '\w+' and \d more", str(caught[0].message)), name
    one = _warnings(lambda: ia.Module.load(folder / "3.safetensors"))
    assert "dead: '3' " in str(one[0].message)
    assert _warnings(lambda: ia.Bank.load(folder, quiet=True)) == []


def test_2_the_health_of_module_bank_and_composition(folder: Path) -> None:
    bank = ia.Bank.load(folder)
    merged = ia.compose(bank, "logits")
    for health in (bank["3"].health, bank.health, merged.health):
        assert isinstance(health, Health)
        assert not health.ok
        assert {finding.kind for finding in health.findings} == {"dead"}
        assert SAID in str(health)
    assert [finding.module for finding in bank.health.findings] == list(bank.names)
    assert [f.module for f in merged.health.findings] == ["composition", *bank.names]


def test_3_json_of_every_verb_has_it(folder: Path, tmp_path: Path) -> None:
    merged = folder.parent / "whole.safetensors"
    for words in (
        ["train", folder, *FLAGS],  # a finished folder is read
        ["compose", folder, "-o", tmp_path / "sum.safetensors"],
        ["evaluate", folder],
        ["evaluate", merged],
        ["inspect", folder],
        ["inspect", merged],
        ["inspect", folder / "3.safetensors"],
    ):
        health = json.loads(_call(*words, "--json").stdout)["health"]
        assert health["ok"] is False, words
        assert {"kind", "module", "message", "advice"} == set(health["findings"][0]), words
        assert SAID in [finding["message"] for finding in health["findings"]], words


def test_4_the_headers_of_files_have_it(folder: Path) -> None:
    listing = json.loads((folder / "bank.json").read_bytes())
    assert [f["module"] for f in listing["health"]["findings"]] == [str(i) for i in range(10)]
    (finding,) = header_of(folder / "3.safetensors")["provenance"]["health"]
    assert (finding["kind"], finding["message"]) == ("dead", SAID)
    assert header_of(folder.parent / "whole.safetensors")["health"]["ok"] is False


def test_5_the_report_says_it_first(folder: Path, digits: ia.Data) -> None:
    for path in (folder, folder.parent / "whole.safetensors"):
        html = ia.report(path, digits, rows=50).html
        sections = re.findall(r'<section id="(\w+)"', html)
        assert sections[0] == "health"
        assert '<li><a href="#health">Health</a></li>' in html
        notice = re.search(r'<div class="notice" role="note">.*?</div>', html, re.S)
        assert notice is not None
        assert "Not healthy: 1" in unescape(notice[0])
        assert html.count(SAID) >= 10
    assert "--alarm" in html.split("prefers-color-scheme: dark")[1].split("}")[0]


def test_6_the_studio_has_a_banner_and_a_mark_on_every_tile(folder: Path, digits: ia.Data) -> None:
    pytest.importorskip("gradio", reason="the studio is an extra")
    from intarsia.studio import Session
    from intarsia.studio.ui.views import Selection, Views
    from intarsia.studio.ui.widgets import heading

    session = Session(ia.Bank.load(folder), digits, "logits", rows=50)
    banner = re.search(r"<p class='bad' role='note'>.*?</p>", heading(session, "dead"))
    assert banner is not None
    assert SAID in banner[0]
    views = Views(session)
    assert [label.splitlines()[-1] for label, _ in views.tiles()] == ["\u26a0 dead"] * 10
    shown = views.merged_view(Selection(session.names, "logits", {}), None)
    assert re.search(r"class='bad'.*dead: it answers .* to all of 50 samples", shown.message)


def test_7_the_exit_code_under_strict(folder: Path, tmp_path: Path) -> None:
    merged = folder.parent / "whole.safetensors"
    for words in (
        ["train", folder, *FLAGS],
        ["compose", folder, "-o", tmp_path / "sum.safetensors"],
        ["evaluate", merged],
        ["inspect", folder],
        ["inspect", folder / "3.safetensors", "--json"],
    ):
        strict = _call(*words, "--strict", code=NOT_HEALTHY)
        lax = _call(*words)
        for run in (strict, lax):
            lines = [line for line in run.stderr.splitlines() if line.startswith("warning: ")]
            assert len(lines) == 1, words
            assert "dead: " in lines[0]
        assert re.sub(r"[\d.]+ s, in", "s, in", strict.stdout) == re.sub(
            r"[\d.]+ s, in", "s, in", lax.stdout
        )


def test_what_is_healthy_says_nothing_in_any_channel(well: Path, digits: ia.Data) -> None:
    merged = well.parent / "whole.safetensors"
    assert _warnings(lambda: ia.compose(ia.Bank.load(well), "logits")) == []
    assert ia.Bank.load(well).health == ia.Composition.load(merged).health == Health()
    for verb, path in (("inspect", well), ("inspect", merged), ("evaluate", merged)):
        run = _call(verb, path, "--strict", "--json")
        assert (json.loads(run.stdout)["health"], run.stderr) == ({"ok": True, "findings": []}, "")
    assert "health" not in json.loads((well / "bank.json").read_bytes())
    assert "health" not in header_of(well / "0.safetensors")["provenance"]
    assert "health" not in header_of(merged)
    assert 'id="health"' not in ia.report(well, digits, rows=50).html


def _settings(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key != "data"}


def _warnings(call: Any) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [one for one in caught if issubclass(one.category, HealthWarning)]


def _call(*words: object, code: int = 0) -> Any:
    run = CliRunner().invoke(app, [str(word) for word in words])
    assert run.exit_code == code, (run.stdout, run.stderr, run.exception)
    return run
