"""The study of the flow: stacks of seeds, and what verdict and tables make of cells."""

from pathlib import Path
from typing import Any

import pytest

from intarsia.errors import StudyError
from intarsia.flow import fit
from intarsia.studies import Findings, Measured, Store, StudyContext, find_study, run
from intarsia.studies.flow import flow_cells
from intarsia.studies.flow.flow_tables import range_text

pytestmark = pytest.mark.usefixtures("one_thread")
TINY: dict[str, Any] = {
    "units": ["linear", "quadratic"], "widths": [1], "steps": 20, "batch": 16, "test_pairs": 64,
    "flow_samples": 1024, "floor_pairs": 256, "closure_samples": 100, "affine_samples": 50,
}  # fmt: skip
LAWS = ("exponential", "laplace")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[Measured]:
    study, store = find_study("flow"), Store(tmp_path_factory.mktemp("flow") / "store")
    options = study.options("small", **TINY)
    return run(study, options, store, context=StudyContext(store, "cpu"))


def test_every_part_is_measured_and_shown(measured: list[Measured]) -> None:
    study = find_study("flow")
    parts = {cell.settings["part"] for cell in measured}
    assert parts == {"arm", "affine", "flow", "floor", "closure"}
    titles = [table.title for table in study.tables(measured)]
    assert len(titles) == len(set(titles)) == 7
    figures = study.figures(measured)
    assert set(figures) == {"flow-steps", "flow-errors", "flow-floor", "flow-closure"}
    texts = [claim.text for claim in study.judge(measured).claims]
    assert any("Affine law" in text for text in texts)
    assert not any("nan" in text for text in texts)


def test_any_part_alone_is_shown(measured: list[Measured]) -> None:
    study = find_study("flow")
    for part in ("arm", "affine", "flow", "floor", "closure"):
        own = [cell for cell in measured if cell.settings["part"] == part][:1]
        assert study.tables(own) or part == "affine"
        assert study.judge(own).line
        study.figures(own)
    assert study.judge([]).line == "nothing is measured yet"


def test_a_stack_is_trained_once_for_its_seeds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls = []

    def counted(**how: Any) -> Any:
        calls.append(how["seeds"])
        return fit(**how)

    monkeypatch.setattr(flow_cells, "fit", counted)
    study, store = find_study("flow"), Store(tmp_path / "store")
    context = StudyContext(store, "cpu")
    options = study.options("small", **{**TINY, "units": ["linear"], "seeds": 3, "forms": "free"})
    cells = [c for c in study.plan(options, context) if c.settings["part"] == "arm"]
    results = [study.measure(cell, context) for cell in cells]
    assert calls == [[0, 1], [2, 3]]
    alone = study.measure(cells[1], StudyContext(store, "cpu"))
    assert alone == results[1]
    assert results[0]["mse"] != results[1]["mse"]


def test_cumulants_are_trained_on_the_first_law_alone() -> None:
    study, context = find_study("flow"), StudyContext(None, "cpu")  # type: ignore[arg-type]
    cells = study.plan(study.options("paper"), context)
    laws = {c.settings["train_law"] for c in cells if c.settings.get("loss") == "cumulants"}
    assert laws == {"exponential"}
    assert len(cells) == 435


def test_what_was_aimed_at_is_judged_on_every_seed() -> None:
    good = [_arm("symmetric", "linear", 1, seed, 1e-31, distance=1e-16) for seed in range(2)]
    bad = _arm("symmetric", "linear", 1, 2, 1e-31, distance=1e-3)
    study = find_study("flow")
    met, missed = (study.judge(Findings(cells)).claims[0] for cells in (good, [*good, bad]))
    assert met.holds is True
    assert missed.holds is False
    assert "2 of 3 seeds" in missed.text
    lost = [_arm("symmetric", "quadratic", 1, 0, 5e-5)]
    assert study.judge(Findings(lost)).claims[0].holds is False
    wide = [_arm("symmetric", "quadratic", 16, 0, 1e-30)]
    assert study.judge(Findings(wide)).claims[0].holds is True


def test_the_formula_is_met_within_2_percent() -> None:
    study = find_study("flow")
    for error, holds in ((0.203, True), (0.21, False)):
        settings = {"part": "floor", "seed": 0, "law": "exponential", "floor_pairs": 10}
        cell = Measured(settings, {"rows": [[0.5, 0.2, error, error]]})
        assert study.judge([cell]).claims[0].holds is holds


def test_networks_that_diverged_are_named() -> None:
    cell = _arm("free", "quadratic", 4, 1, 0.0)
    gone = Measured(cell.settings, {"diverged": True})
    verdict = find_study("flow").judge([gone])
    assert list(verdict.failed) == ["free quadratic, 4 pairs, seed 1"]
    assert find_study("flow").tables([gone]) == []


def test_ranges_name_the_seed_that_failed() -> None:
    assert range_text([1e-5, 1e-6, 2.0]) == "1.0e-05 (1.0e-06 to 2.0e+00)"
    assert range_text([0.5]) == "5.0e-01"
    assert range_text([None]) is None


def _arm(form: str, unit: str, width: int, seed: int, error: float, **more: Any) -> Measured:
    settings = {
        "part": "arm", "form": form, "unit": unit, "width": width, "train_law": "exponential",
        "loss": "mse", "seed": seed, "test_pairs": 8, "laws": LAWS,
    }  # fmt: skip
    flow = [[0.0, 1.0, 2.0, 6.0], [0.0, 1.0, 1.4, 3.0]]
    result = {"mse": dict.fromkeys(LAWS, error), "steps": flow, "law": flow, **more}
    return Measured(settings, result)


def test_more_steps_than_any_sample_lasts_for_are_refused() -> None:
    """Without a bound the error itself would have too many digits to be written."""
    options = {**flow_cells.SCALES["small"], "flow_steps": 20_000}
    with pytest.raises(StudyError, match="'flow_steps' is 20000: expected at most 24"):
        next(flow_cells.cells(options, None))  # type: ignore[arg-type]
