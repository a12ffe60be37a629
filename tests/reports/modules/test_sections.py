"""Sections from outside the package: one function, one registration."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import intarsia as ia
from intarsia.plots import curve_panels
from intarsia.reports import SECTIONS, ReportContext, Section, section
from intarsia.reports.html.elements import paragraph, table

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """What a test registers is gone afterwards."""
    before = dict(SECTIONS)
    yield
    SECTIONS.clear()
    SECTIONS.update(before)


def keys(html: str) -> list[str]:
    return re.findall(r'<section id="([\w-]+)"', html)


def test_a_section_of_ones_own_stands_where_its_order_says(two_seeds: Path) -> None:
    @section("sizes", "Sizes & more", order=35)
    def sizes(context: ReportContext) -> str:
        rows = [[module.name, module.nonzero] for module in context.inputs.modules]
        return table(["module", "parameters"], rows, "Parameters that each module keeps")

    html = ia.report(two_seeds, rows=20).html
    place = keys(html).index("sizes")
    assert keys(html)[place - 1 : place + 2] == ["modules", "sizes", "joined"]
    assert '<a href="#sizes">Sizes &amp; more</a>' in html
    assert "Parameters that each module keeps" in html


def test_it_measures_and_draws_with_the_others(two_seeds: Path) -> None:
    @section("worst", "The worst module", order=45, needs_data=True)
    def worst(context: ReportContext) -> str:
        scores = {name: s.accuracy for name, s in context.measured.single.items()}
        drawn = curve_panels(
            {"accuracy": {"all": dict(enumerate(scores.values()))}}, title="accuracy"
        )
        return context.figure(
            "worst", drawn, f"The worst: {min(scores.values()):.4f}", "accuracies"
        )

    bank, data = ia.Bank.load(two_seeds), ia.load_data("digits")
    report = ia.report(bank, data)
    expected = min(ia.evaluate(module, data.test).accuracy for module in bank)
    assert f"The worst: {expected:.4f}" in report.html
    assert "worst" in report.figures


def test_without_data_or_anything_to_show_it_is_left_out(
    two_seeds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @section("measured", "Measured", order=45, needs_data=True)
    def measured(context: ReportContext) -> str:
        return paragraph(f"{len(context.measured.split)} samples")

    @section("silent", "Silent", order=46)
    def silent(context: ReportContext) -> str | None:
        return None

    modules = [ia.Bank.load(two_seeds)[0]]
    assert "silent" not in keys(ia.report(modules, rows=20).html)
    assert "measured" in keys(ia.report(modules, rows=20).html)
    unknown = ia.Module(**{**vars_of(modules[0]), "provenance": {}})
    assert "measured" not in keys(ia.report(unknown).html)


def test_sections_given_to_report_stand_before_the_commands(two_seeds: Path) -> None:
    @section("late", "Late", order=99)
    def late(context: ReportContext) -> str:
        return paragraph("late")

    given = Section("probe", "A probe", paragraph("given"))
    html = ia.report(two_seeds, rows=20, sections=[given]).html
    assert keys(html)[-3:] == ["late", "probe", "reproduce"]


def test_one_of_ours_can_be_replaced_or_taken_out(two_seeds: Path) -> None:
    @section("trained", "How it was trained", order=5)
    def trained(context: ReportContext) -> str:
        return paragraph("by hand")

    del SECTIONS["path"]
    html = ia.report(two_seeds, rows=20).html
    assert next(key for key in keys(html) if key != "health") == "trained"
    assert "How it was trained" in html
    assert "path" not in keys(html)


def vars_of(module: ia.Module) -> dict[str, object]:
    return {name: getattr(module, name) for name in module.__dataclass_fields__}
