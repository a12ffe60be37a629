"""Sections through the layers: the numbers of lens and flow, and what is left out."""

from pathlib import Path
from typing import Any

import pytest

import intarsia as ia
from intarsia.data import subsample
from intarsia.flow import propagate
from intarsia.lens import tuned
from intarsia.reports import SECTIONS, ReportContext
from intarsia.reports.modules import layered
from intarsia.reports.modules.report_input import ReportInput, subject_of

pytestmark = pytest.mark.usefixtures("one_thread")


def body(key: str, artifact: Any, data: ia.Data, **options: Any) -> str | None:
    return SECTIONS[key](ReportContext(subject_of(artifact, data, **options)))


def test_the_lens_has_its_numbers(two_seeds: Path) -> None:
    bank, data = ia.Bank.load(two_seeds), ia.load_data("digits")
    html = str(body("lens", bank, data))
    own = tuned(bank.seed(0), data, rows=layered.ROWS)
    for layer in own.layers:
        assert f"{own.mean('auc_other', layer):.4f}" in html
    assert f"{own.together[-1].wrong:.4f}" in html
    assert "figure-entropy-by-layer" in html
    assert "This is seed" in html


def test_the_closure_error_of_each_activation_is_named(two_seeds: Path) -> None:
    bank, data = ia.Bank.load(two_seeds).seed(0), ia.load_data("digits")
    html = str(body("flow", bank, data))
    for module in list(bank)[: layered.CARRIED]:
        found = propagate(module, subsample(data.test, layered.ROWS))
        last = [layer for layer in found if layer.kind == "relu"][-1]
        assert last.covariance_error is not None
        assert f"{100 * last.covariance_error:.1f}%" in html
    assert "figure-closure-error" in html


def test_what_takes_long_or_has_no_moments_is_left_out(
    two_seeds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank, data = ia.Bank.load(two_seeds).seed(0), ia.load_data("digits")
    monkeypatch.setattr(layered, "WIDEST", 1)
    assert body("flow", bank, data) is None
    monkeypatch.setattr(ReportInput, "large", True)
    monkeypatch.setattr(layered, "tuned", None)
    assert "intarsia lens modules" in str(body("lens", bank, data))


def test_convolutions_have_a_lens_and_no_flow() -> None:
    data = ia.load_data("digits", classes=["0", "1"])
    bank = ia.train(data, model="lenet", epochs=1, rounds=0, progress=False)
    assert body("flow", bank, data) is None
    assert "before fc3" in str(body("lens", bank, data, rows=50))
