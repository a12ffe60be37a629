import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import intarsia as ia
from intarsia.errors import DataError, StudyError
from intarsia.studies import Measured, Store, Study, StudyContext, run
from intarsia.studies.selection import unmatched_values
from intarsia.studies.sweetspot import pattern_cells
from intarsia.studies.sweetspot.pattern_cells import FitPlan, seed_of


def cell_of(measured: Sequence[Measured], **settings: Any) -> Measured:
    (found,) = [
        cell for cell in measured if all(cell.settings.get(k) == v for k, v in settings.items())
    ]
    return found


def test_every_part_and_arm_has_cells(measured: Sequence[Measured]) -> None:
    parts = [cell.settings["part"] for cell in measured]
    counts = {part: parts.count(part) for part in pattern_cells.PARTS}
    assert counts == {
        "reference": 1,
        "arms": 1 + 3 * 2,
        "depth": 3 * 2,
        "wiring": 2,
        "optimisers": 2,
        "volume": 9,
    }


def test_networks_have_the_budget_of_their_round(measured: Sequence[Measured]) -> None:
    pruned = [cell for cell in measured if cell.settings.get("weights")]
    assert {cell.settings["weights"] for cell in pruned} == {142, 90}
    for cell in pruned:
        assert set(cell.result["nonzero"]) == {cell.settings["weights"]}
        assert cell.result["seeds"] == [0, 1]
    deeper = cell_of(measured, part="depth", arm="similarity", offset=1)
    layout = ia.sweetspot.PatternLayout(ia.sweetspot.load("totem").layout.blocks, 7)
    assert deeper.result["depth"] == 7
    assert set(deeper.result["nonzero"]) == {round(1404 / 5478 * layout.parameters)}


def test_the_second_round_prunes_the_first(
    measured: Sequence[Measured], options: dict[str, Any], store: Store
) -> None:
    """Against the same steps by hand: dense, pruned, trained on, pruned again, trained on."""
    cell = cell_of(measured, part="arms", arm="similarity", weights=90)
    how = {**options["recipe"], "learning_rate": 3e-3, "device": "cpu", "progress": False}
    bank = ia.sweetspot.fit("totem", seeds=[1], **how)
    for weights in (142, 90):
        how["steps"] = options["retraining"]
        bank = ia.sweetspot.prune(bank, "similarity", weights=weights, seed=1, image="totem", **how)
    assert bank.losses is not None
    assert cell.result["losses"][1] == pytest.approx(bank.losses[0], rel=1e-4)


def test_tickets_begin_where_their_seed_began(measured: Sequence[Measured], store: Store) -> None:
    cell = cell_of(measured, part="arms", arm="ticket", weights=142).settings
    plan = FitPlan("totem", cell["target"][0], (0, 1), cell["recipe"])
    pruned = FitPlan(
        *(plan.data, plan.target, plan.seeds, plan.recipe),
        chain=(("ticket", 142),),
        retraining=cell["retraining"],
    )._pruned(StudyContext(store, "cpu"))
    assert pruned is not None
    start = ia.sweetspot.initial_bank(plan.layout, [0, 1])
    assert pruned.masks is not None
    for weights, begun, mask in zip(pruned.weights, start.weights, pruned.masks, strict=True):
        assert bool((weights[mask] == begun[mask]).all())


def test_dense_networks_are_fitted_once_for_all_arms(
    measured: Sequence[Measured], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of cells that start from the same networks, only the first fits them."""
    cell = cell_of(measured, part="arms", arm="dense").settings
    plan = FitPlan("totem", cell["target"][0], (0, 1), cell["recipe"])
    monkeypatch.setattr(pattern_cells, "fit", None)
    bank = plan.fitted(StudyContext(store, "cpu"))
    assert bank is not None
    assert [seed_of(name) for name in bank.names] == [0, 1]
    depth = cell_of(measured, part="depth", arm="dense", offset=0)
    assert list(bank.losses or ()) == pytest.approx(depth.result["losses"], rel=1e-4)


def test_a_damaged_fit_is_made_again(study: Study, options: Any, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    few = {**options, "parts": ["arms"], "arms": ["dense"]}
    (cell,) = run(study, few, store, device="cpu")
    (kept,) = store.path.glob("fits/*/bank.safetensors")
    kept.write_bytes(b"damaged")
    plan = FitPlan("totem", cell.settings["target"][0], (0, 1), cell.settings["recipe"])
    bank = plan.fitted(StudyContext(store, "cpu"))
    assert bank is not None
    assert list(bank.losses or ()) == pytest.approx(cell.result["losses"], rel=1e-4)


def test_a_folder_of_fits_has_one_owner_at_a_time(tmp_path: Path) -> None:
    store, order = Store(tmp_path / "store"), list[str]()

    def wait() -> None:
        with store.fit_folder("key"):
            order.append("second")

    other = threading.Thread(target=wait)
    with store.fit_folder("key"):
        other.start()
        other.join(0.2)
        order.append("first")
    other.join(10)
    assert order == ["first", "second"]


def test_networks_that_cannot_be_pruned_are_left_out(
    study: Study, options: Any, tmp_path: Path
) -> None:
    few = {**options, "parts": ["arms"], "arms": ["similarity"], "budgets": {"totem": [3]}}
    (cell,) = run(study, few, Store(tmp_path / "store"), device="cpu")
    assert cell.result == {"seeds": [], "losses": [], "scores": [], "flat": []}
    assert study.tables([cell])
    assert study.judge([cell]).claims == []


def test_targets_that_are_not_here_fall_out_with_a_remark(
    study: Study, options: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTARSIA_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path / "none"))
    context = StudyContext(Store(tmp_path / "store"), "cpu")
    both = {**options, "data": ["skull", "totem"]}
    planned = study.plan(both, context)
    assert {cell.settings["data"] for cell in planned} == {"totem"}
    assert unmatched_values(both, planned) == ["no cell has data=skull"]
    with pytest.raises(DataError, match="skull is not on this machine"):
        study.plan({**options, "data": ["skull", "apple"]}, context)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("parts", ["armss"], "arms"),
        ("arms", ["likeness"], "option 'arms' has 'likeness'"),
        ("arms", ["evolved"], "part 'wiring'"),
        ("optimisers", ["adamm"], "option 'optimisers'"),
        ("offsets", [0.5], "whole numbers"),
        ("scored", 0, "option 'scored'"),
        ("budgets", {"totem": [0]}, "option 'totem'"),
    ],
)
def test_options_are_checked_before_anything_runs(
    study: Study, options: Any, tmp_path: Path, key: str, value: Any, words: str
) -> None:
    with pytest.raises(StudyError, match=words):
        study.plan({**options, key: value}, StudyContext(Store(tmp_path / "store"), "cpu"))


def test_the_printed_budgets_are_those_of_the_paper(
    study: Study, tmp_path: Path, cppn: Path
) -> None:
    cells = study.plan(study.options(), StudyContext(Store(tmp_path / "store"), "cpu"))
    budgets: dict[str, set[int]] = {}
    for cell in cells:
        if cell.settings.get("weights"):
            budgets.setdefault(cell.settings["data"], set()).add(cell.settings["weights"])
    assert budgets == {"skull": {1404, 473}, "butterfly": {3405, 468}, "apple": {11618}}
