"""The study of graphs: cells that share graphs, claims and tables made of them."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intarsia.plots import svg
from intarsia.studies import Measured, Store, StudyContext, find_study, run
from intarsia.studies.graphs import graph_cells, graph_tables
from intarsia.studies.graphs.graph_claims import Gap, corrected
from planted_nodes import planted

pytestmark = pytest.mark.usefixtures("one_thread")
TINY: dict[str, Any] = {
    "seeds": 2, "width": 8, "epochs": 4, "budgets": [2, 4], "control_epochs": 2,
    "controls": ["tau 0.05", "2 hops", "random edges", "heat capacity", "diffusion"],
    "random_scales": 3, "ranges": [[0.01, 0.1]], "scale_seeds": 2, "honest_width": 8,
    "honest_epochs": 2, "encoders": ["gcn"], "diffusion_top": 4,
    "honest_arms": ["MB", "MR", "2 hops"],
}  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("nodes") / "planted.npz"
    np.savez(path, **planted())
    return str(path)


@pytest.fixture(scope="module")
def measured(source: str, tmp_path_factory: pytest.TempPathFactory) -> list[Measured]:
    study, store = find_study("graphs"), Store(tmp_path_factory.mktemp("graphs") / "store")
    options = study.options("small", data=source, **TINY)
    return run(study, options, store, context=StudyContext(store, "cpu"))


def test_every_part_is_measured_and_shown(measured: list[Measured]) -> None:
    study = find_study("graphs")
    parts = {cell.settings["part"] for cell in measured}
    assert parts == {"table", "controls", "honest", "scales"}
    titles = [table.title for table in study.tables(measured)]
    assert len(titles) == len(set(titles)) == 7
    figures = study.figures(measured)
    assert set(figures) == {"graphs-epochs", "graphs-tau"}
    assert all("nan" not in svg(figure) for figure in figures.values())
    verdict = study.judge(measured)
    assert verdict.line.startswith("width 8, 2 seeds: MR above MB, authors' protocol")
    assert "not the paper's networks" in verdict.text
    assert not any("nan" in table.markdown() for table in study.tables(measured))


def test_the_papers_numbers_have_its_places(
    measured: list[Measured], source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(graph_tables.PRINTED, (source, "gcn"), (72.0, 72.4, 72.0, 75.2))
    shown = find_study("graphs").tables(measured)[0]
    papers, off = (
        [str(row[column]) for row in shown.records()] for column in ("paper", "ours - paper")
    )
    assert papers == ["72.0", "72.4", "72.0", "75.2"]
    assert all(re.fullmatch(r"[+-]\d+\.\d", text) for text in off)


def test_any_part_alone_is_shown(measured: list[Measured]) -> None:
    study = find_study("graphs")
    for part in ("table", "controls", "honest", "scales"):
        own = [cell for cell in measured if cell.settings["part"] == part]
        for some in (own, own[:1]):
            study.tables(some)
            study.figures(some)
            assert study.judge(some).line
            assert all(claim.text for claim in study.judge(some).claims)
    assert study.judge([]).line == "nothing is measured yet"


def test_second_graphs_are_made_once_for_all_cells(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    made = graph_cells._made

    def counted(arm: str, *rest: Any) -> Any:
        calls.append(arm)
        return made(arm, *rest)

    monkeypatch.setattr(graph_cells, "_made", counted)
    study, store = find_study("graphs"), Store(tmp_path / "store")
    options = study.options("small", data=source, **{**TINY, "random_scales": 0})
    for _ in range(2):
        context = StudyContext(store, "cpu")
        for cell in study.plan(options, context):
            if cell.settings["arm"] in ("SR", "MR", "diffusion", "random edges"):
                study.measure(cell, context)
    assert sorted(calls) == ["diffusion", "random edges", "tau*"]


def test_controls_are_compared_after_as_many_epochs() -> None:
    study = find_study("graphs")
    budgets = {"50": [0.5, 0.6, 0.7], "100": [0.9, 0.9, 0.9]}
    cells = [
        _cell("table", "MR", [0.9, 0.9, 0.9], 100, budgets=budgets),
        _cell("controls", "2 hops", [0.6, 0.7, 0.8], 50),
    ]
    (claim,) = [c for c in study.judge(cells).claims if "every other" in c.text]
    assert claim.holds is False
    assert "2 hops -10.0" in claim.evidence["numbers"]


@pytest.mark.parametrize(
    ("test", "holds"),
    [([0.60, 0.61, 0.62, 0.61], True), ([0.9, 0.3, 0.6, 0.7], None), ([0.4] * 4, False)],
)
def test_mr_is_above_mb_where_the_test_says_so(test: list[float], holds: bool | None) -> None:
    cells = [_cell("table", "MB", [0.5, 0.51, 0.5, 0.51], 9), _cell("table", "MR", test, 9)]
    claims = find_study("graphs").judge(cells).claims
    assert [c.holds for c in claims if "MR above MB" in c.text] == [holds]


def test_one_better_scale_is_enough_to_deny_the_best() -> None:
    ours = _cell("table", "MR", [0.6, 0.9], 9)
    others = [_cell("scales", f"tau {n}", [0.5, 0.5 + n], 9, tau=float(n)) for n in (0.1, 0.9)]
    for cells, holds in (([ours, others[0]], None), ([ours, *others], False)):
        (claim,) = [c for c in find_study("graphs").judge(cells).claims if "random scale" in c.text]
        assert claim.holds is holds


def test_p_is_corrected_for_all_comparisons() -> None:
    gaps = {n: Gap((1.0, 2.0), p) for n, p in enumerate([0.01, 0.04, 0.5])}
    assert [gap.p for gap in corrected(gaps).values()] == pytest.approx([0.03, 0.08, 0.5])


def test_random_scales_lie_in_their_ranges() -> None:
    options = find_study("graphs").options("paper")
    taus = graph_cells.drawn_scales(options)
    counts = [sum(low <= tau <= high for tau in taus) for low, high in options["ranges"]]
    assert counts == [10, 10, 10]
    assert taus == graph_cells.drawn_scales(options)


def _cell(part: str, arm: str, test: list[float], epochs: int, **result: Any) -> Measured:
    settings = {
        "part": part, "data": "cora", "encoder": "gcn", "protocol": "authors", "arm": arm,
        "width": 64, "learning_rate": 1e-3, "epochs": epochs, "seeds": list(range(len(test))),
    }  # fmt: skip
    return Measured(settings, {"test": test, "edges": 10, "budgets": {}, "tau": None} | result)
