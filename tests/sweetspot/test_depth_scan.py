"""Scans over depth and width: what is fitted, how it is counted, and that it goes on."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from intarsia.errors import RecipeError
from intarsia.sweetspot import (
    DepthRow,
    DepthScan,
    depth,
    depth_scan,
    load,
    png_ratio,
    predicted_depth,
    published_picture,
    volume,
)
from intarsia.sweetspot.depth_scan import KNOWN

QUICK: dict[str, Any] = {"seeds": 2, "steps": 4, "size": 8, "weights": 3, "progress": False}


def row(number: int, arm: str, losses: tuple[float, ...], scores: tuple[float, ...]) -> DepthRow:
    return DepthRow(number, 3, arm, (5,) * len(losses), losses, scores, 0, 4)


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> tuple[DepthScan, Path]:
    out = tmp_path_factory.mktemp("scan")
    return depth("totem", offsets=(-1, 1), out=out, **QUICK), out


def test_every_depth_is_fitted_dense_and_pruned(scan: tuple[DepthScan, Path]) -> None:
    result, _ = scan
    assert [(r.depth, r.arm) for r in result.rows] == [
        (5, "dense"), (5, "similarity"), (7, "dense"), (7, "similarity")
    ]  # fmt: skip
    for dense, pruned in zip(result.rows[::2], result.rows[1::2], strict=True):
        parameters = 10 * 4 + (dense.depth - 1) * 100 + 30
        assert dense.weights == (parameters, parameters)
        assert pruned.weights == (round(parameters * 1404 / 5478),) * 2
        assert len(dense.losses) == len(dense.scores) == 2
        assert dense.steps == pruned.steps == 8
    assert 0 < result.ratio < 1
    values = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert values["rows"][0]["depth"] == 5


def test_a_scan_goes_on_where_it_was(
    scan: tuple[DepthScan, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    result, out = scan
    banks = sorted(str(path.relative_to(out)) for path in out.rglob("bank.safetensors"))
    folders = [name.split("/")[:2] for name in banks]
    kinds = [(depth, arm.partition("-")[0]) for depth, arm in folders]
    assert kinds == [
        (f"depth-00{d}", arm) for d in (5, 7) for arm in ("dense", "dense", "similarity")
    ]

    def never(*_: Any) -> None:
        raise AssertionError("it is trained again")

    monkeypatch.setattr("intarsia.sweetspot.pattern_fits._Run.train", never)
    again = depth("totem", offsets=(-1, 1), out=out, **QUICK)
    assert again.rows == result.rows


def test_curves_have_the_median_and_the_ends() -> None:
    rows = (
        row(4, "dense", (1.0, 3.0, 9.0), (1.0, math.nan, 2.0)),
        row(6, "dense", (2.0, 2.0, 2.0), (math.nan,) * 3),
    )
    scan = DepthScan(rows, 0.2, "none")
    assert scan.curves("loss") == {"dense": {4: (3.0, 1.0, 9.0), 6: (2.0, 2.0, 2.0)}}
    assert scan.curves("score") == {"dense": {4: (1.5, 1.0, 2.0)}}
    assert scan.best() == 6
    assert rows[0].to_json()["scores"] == [1.0, None, 2.0]
    assert math.isnan(rows[1].score)
    with pytest.raises(RecipeError, match="'loss' or 'score'"):
        scan.curves("delta")
    with pytest.raises(RecipeError, match="arm 'wanda'"):
        scan.best("wanda")


def test_flat_pictures_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def flat_fit(*args: Any, **settings: Any) -> Any:
        from intarsia.sweetspot import PatternBank, initial_bank
        from intarsia.sweetspot.networks import PatternLayout

        bank = initial_bank(PatternLayout(settings["blocks"], settings["depth"]), 2)
        weights = [w.clone() for w in bank.weights]
        weights[-1][1] = 0
        return PatternBank(bank.layout, tuple(weights), losses=(0.1, 0.36), report={"steps": 4})

    monkeypatch.setattr(depth_scan, "fit", flat_fit)
    (only,) = depth("totem", offsets=[0], arms=["dense"], **QUICK).rows
    assert only.flat == 1


def test_a_share_of_seeds_passes_both_thresholds() -> None:
    mapped = volume("totem", widths=(4, 6), depths=(1, 2), loss=1e9, score=1e9, **QUICK)
    assert len(mapped.rows) == 4
    assert [(r.width, r.depth) for r in mapped.rows] == [(4, 1), (4, 2), (6, 1), (6, 2)]
    shares = [s for cells in mapped.shares for s in cells]
    expected = [sum(s == s for s in r.scores) / 2 for r in mapped.rows]
    assert shares == expected
    assert mapped.volume == pytest.approx(sum(shares) / 4)
    none = volume("totem", widths=(4,), depths=(1,), loss=1e-9, score=1e9, **QUICK)
    assert none.shares == ((0.0,),)
    assert json.loads(json.dumps(none.to_json()))["volume"] == 0
    inflated = volume("totem", widths=(4,), depths=(1,), loss=1e9, score=0.0, **QUICK)
    assert inflated.shares == ((0.0,),)


@pytest.mark.parametrize(
    ("ratios", "ratio", "expected"),
    [((0.19, 0.217, 0.242), 0.20, 14), ((0.1, 0.2, 0.3), 0.1, 10), ((0.1, 0.2, 0.3), 0.3, 31)],
)
def test_the_predicted_depth_lies_on_a_line(
    ratios: tuple[float, ...], ratio: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depth_scan, "_known_ratios", lambda _: list(ratios))
    monkeypatch.setattr(depth_scan, "png_ratio", lambda _: ratio)
    assert predicted_depth("totem") == expected


def test_no_depth_is_predicted_beyond_the_pictures_that_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noise = torch.rand(64, 64, 3, generator=torch.Generator().manual_seed(0))
    halves = torch.zeros(64, 64, 3)
    halves[32:] = 1
    for picture in (noise, halves, "totem"):
        with pytest.raises(RecipeError, match="as in center=12"):
            predicted_depth(picture)
    with pytest.raises(RecipeError, match="as in center=12"):
        depth(noise, **QUICK)
    monkeypatch.setattr(depth_scan, "fit", lambda *_, **settings: settings["depth"] / 0)
    with pytest.raises(ZeroDivisionError):  # a center needs no prediction
        depth(noise, center=3, **QUICK)


def test_evolved_networks_and_their_pictures_are_measured_alike(cppn: Path) -> None:
    for name, (layers, drawn, published) in KNOWN.items():
        assert load(name).image(256).shape == (256, 256, 3)
        assert png_ratio(load(name).image(256)) == pytest.approx(drawn, rel=0.03)
        assert png_ratio(published_picture(name)) == pytest.approx(published, rel=0.03)
        for picture in (name, published_picture(name)):
            assert abs(predicted_depth(picture) - layers) <= 5


def test_networks_that_diverged_count_as_the_worst() -> None:
    rows = (
        row(4, "dense", (math.nan, math.nan, 0.1), (math.nan, math.nan, 1.0)),
        row(6, "dense", (0.2, 0.3, math.nan), (1.0, 1.0, math.nan)),
        row(8, "dense", (math.nan,) * 3, (math.nan,) * 3),
    )
    scan = DepthScan(rows, 0.2, "none")
    assert [r.diverged for r in rows] == [2, 1, 3]
    assert [r.loss for r in rows] == [0.1, 0.25, math.inf]
    assert scan.best() == 6
    assert DepthScan(rows[::2], 0.2, "none").best() == 4
    assert DepthScan(rows[2:], 0.2, "none").best() == 8
    assert scan.curves("loss")["dense"].keys() == {4, 6}
    values = json.loads(json.dumps(scan.to_json(), allow_nan=False))
    assert values["rows"][1]["losses"] == [0.2, 0.3, None]


def test_dense_networks_alone_are_not_trained_on() -> None:
    (only,) = depth("totem", offsets=[0], arms=["dense"], **QUICK).rows
    assert only.steps == 4


def test_arms_of_one_name_and_several_rates_go_into_one_folder(tmp_path: Path) -> None:
    arms = ["similarity", "similarity(by='correlation')", "dense"]
    settings = {**QUICK, "learning_rate": [3e-3, 1e-3]}
    scan = depth("totem", offsets=[-3], arms=arms, out=tmp_path, **settings)
    assert [len(r.losses) for r in scan.rows] == [4, 4, 4]
    assert {r.steps for r in scan.rows} == {8}
    assert len(list(tmp_path.rglob("bank.safetensors"))) == 4
    assert scan.rows[0].losses != scan.rows[1].losses


@pytest.mark.parametrize(
    ("arm", "message"),
    [("similar", "did you mean"), ("ticket", "needs more than a scan"), ("evolved", "wiring")],
)
def test_arms_are_checked_before_anything_is_fitted(
    arm: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depth_scan, "fit", None)
    with pytest.raises(RecipeError, match=message):
        depth("totem", arms=["dense", arm], **QUICK)


def test_a_scan_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(RecipeError, match="no depth is left"):
        depth("totem", center=2, offsets=[-4], **QUICK)
    with pytest.raises(RecipeError, match="share is 0"):
        depth("totem", share=0.0, **QUICK)
    with pytest.raises(RecipeError, match="share is 'a'"):
        depth("totem", share="a", **QUICK)  # type: ignore[arg-type]
    for center in (0, 2.5):
        with pytest.raises(RecipeError, match=f"center is {center}"):
            depth("totem", center=center, **QUICK)  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="offsets are"):
        depth("totem", offsets=[0.5], **QUICK)  # type: ignore[list-item]
    with pytest.raises(RecipeError, match="at least one of each"):
        volume("totem", widths=[], **QUICK)
    with pytest.raises(RecipeError, match="threshold loss is nan"):
        volume("totem", loss=math.nan, **QUICK)
