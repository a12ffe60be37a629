"""What a report measures, compared with what `evaluate` says of the composition itself."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import intarsia as ia
from intarsia.data import Split
from intarsia.errors import CompositionError, DataError, FileError, RecipeError
from intarsia.measure import Evaluation
from intarsia.reports.html.words import percent
from intarsia.reports.modules.measurements import Measurements, steps
from intarsia.reports.modules.report_input import ReportInput, subject_of

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def inputs(demo_folder: Path) -> ReportInput:
    return subject_of(demo_folder)


@pytest.fixture(scope="module")
def measured(inputs: ReportInput) -> Measurements:
    return Measurements(inputs)


def same(seen: Evaluation, expected: Evaluation) -> None:
    assert seen.accuracy == expected.accuracy
    assert seen.entropy == pytest.approx(expected.entropy, rel=1e-4, nan_ok=True)
    np.testing.assert_array_equal(seen.confusion, expected.confusion)
    np.testing.assert_allclose(seen.entropy_per_class, expected.entropy_per_class, rtol=1e-4)
    assert (seen.rewarded, seen.n, seen.ceiling) == (
        *(expected.rewarded, expected.n, expected.ceiling),
    )


def test_each_module_and_all_of_them(inputs: ReportInput, measured: Measurements) -> None:
    test, bank = ia.load_data("digits").test, inputs.modules
    for module in bank[:2]:
        same(measured.single[module.name], ia.evaluate(module, test))
    assert list(measured.joined) == ["sum", "logits"]
    for operator, score in measured.joined.items():
        same(score, ia.evaluate(ia.compose(bank, operator), test))


def test_networks_trained_elsewhere_are_joined_with_statistics_that_fit() -> None:
    data, base = ia.load_data("digits"), nn.Sequential(
        nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 10)
    )  # fmt: skip
    about = {"catalogue": data.catalogue, "shape": data.shape, "base": base}
    modules = []
    for name, seed in (("3", 0), ("8", 1)):
        network = copy.deepcopy(base)
        generator = torch.Generator().manual_seed(seed)
        for tensor in network.state_dict().values():
            if tensor.is_floating_point():
                tensor += torch.rand(tensor.shape, generator=generator)
        modules.append(ia.Module.of(network, rewarded=name, **about))
    inputs = subject_of(modules, data)
    merged = ia.compose(modules, "sum", samples=data.validation)
    same(Measurements(inputs).joined["sum"], ia.evaluate(merged, data.test))
    page = ia.report(modules).html  # which measures nothing
    assert "<h1>Two modules</h1>" in page
    assert "Each module was trained elsewhere, for its own class." in page


def test_on_the_way_there(inputs: ReportInput, measured: Measurements) -> None:
    test, bank = ia.load_data("digits").test, inputs.modules
    for operator, curve in measured.curves.items():
        assert list(curve) == list(range(1, 11))
        same(curve[1], ia.evaluate(bank[0], test))
        same(curve[3], ia.evaluate(ia.compose(bank[:3], operator), test))


def test_one_taken_out(inputs: ReportInput, measured: Measurements) -> None:
    test, merged = ia.load_data("digits").test, ia.compose(inputs.modules, "logits")
    assert measured.added is not None
    same(measured.added, ia.evaluate(merged, test))
    same(measured.without["3"], ia.evaluate(merged - "3", test))


def test_the_pair_is_the_one_of_most_interference(
    inputs: ReportInput, measured: Measurements
) -> None:
    matrix = ia.compatibility_matrix(inputs.modules, ia.load_data("digits"))
    assert measured.matrix is not None
    assert measured.pair is not None
    assert measured.path is not None
    np.testing.assert_array_equal(measured.matrix["interference"], matrix["interference"])
    worst = np.unravel_index(np.nanargmax(matrix["interference"]), (10, 10))
    assert [m.name for m in measured.pair] == [matrix.names[i] for i in worst]
    assert measured.path.modules == tuple(m.name for m in measured.pair)
    assert measured.path.curves["train"].n == 1000
    assert measured.path.curves["test"].n == 359


def test_answers_are_mean_probabilities(inputs: ReportInput, measured: Measurements) -> None:
    test, module = ia.load_data("digits").test, inputs.modules[3]
    expected = module.to_module().predict_proba(test.x)[test.y == 3].mean(dim=0)
    seen = measured.answers(measured.logits(module))
    np.testing.assert_allclose(seen[3], expected.numpy(), rtol=1e-5)
    np.testing.assert_allclose(seen.sum(axis=1), 1)


def test_the_demo_has_other_ways(
    inputs: ReportInput, measured: Measurements, demo_folder: Path
) -> None:
    test = ia.load_data("digits").test
    assert list(measured.compared) == [
        "modules with territories, weights added",
        "one network trained on all classes",
    ]
    joint = ia.evaluate(ia.Bank.load(demo_folder / "joint")[0], test)
    same(measured.compared["one network trained on all classes"], joint)


def test_a_composition_is_measured_by_its_own_operator(inputs: ReportInput) -> None:
    merged = ia.compose(inputs.modules[:3], "ties(density=0.5)")
    result = Measurements(subject_of(merged))
    assert list(result.curves) == ["ties(density=0.5)", "sum", "logits"]
    same(result.joined["ties(density=0.5)"], ia.evaluate(merged, ia.load_data("digits").test))
    inlay = Measurements(subject_of(ia.compose(inputs.modules[:3], "inlay")))
    assert list(inlay.curves) == ["inlay", "sum"]  # the logit sum is the inlay's own


@pytest.mark.parametrize(
    ("operator", "options", "label"),
    [
        ("logits", {"calibrate": True}, "logits, calibrated"),
        ("inlay", {"calibrate": True}, "inlay, calibrated"),
        ("sum", {"align": "weights"}, "sum, aligned by weights"),
    ],
)
def test_a_composition_is_measured_with_its_options(
    operator: str, options: dict[str, Any], label: str, two_seeds: Path
) -> None:
    data = ia.load_data("digits")
    modules = ia.Bank.load(two_seeds)
    modules = [modules["0-s0"], modules["1-s1" if "align" in options else "1-s0"]]
    merged = ia.compose(modules, operator, samples=data, **options)
    result = Measurements(subject_of(merged))
    same(result.joined[label], ia.evaluate(merged, data.test))
    same(result.joined["logits"], ia.evaluate(ia.compose(modules, "logits"), data.test))
    html = ia.report(merged).html
    assert f"<h1>Two modules joined by {label}</h1>" in html
    told = {"logits": "logits added", "inlay": "side by side (inlay)", "sum": "weights added"}
    shown = f"right when joined: {told[operator]}{label.removeprefix(operator)}</li>"
    assert f"<strong>{percent(result.joined[label].accuracy)}</strong> {shown}" in html


def test_a_calibrated_composition_grows_calibrated(two_seeds: Path) -> None:
    modules, samples = ia.Bank.load(two_seeds).seed(0), ia.load_data("digits").test
    less = Split(samples.x[:60], samples.y[:60])
    merged = ia.compose(modules, "logits", samples=less, calibrate=True)
    curve = Measurements(subject_of(merged)).curves["logits, calibrated"]
    same(curve[2], ia.evaluate(merged - modules[2], samples))


def test_fewer_test_samples_on_request(inputs: ReportInput) -> None:
    result = subject_of(inputs.modules[0], rows=50)
    assert len(result.test) == 50
    with pytest.raises(RecipeError, match="rows is 0"):
        subject_of(inputs.modules[0], rows=0)


def test_modules_of_two_origins_are_not_added(inputs: ReportInput) -> None:
    other = ia.train(
        ia.load_data("digits"),
        preset="paper",
        model="mlp(512)",
        epochs=1,
        rounds=0,
        partition=[["7"]],
        seeds=[5],
        progress=False,
    )
    result = Measurements(subject_of([inputs.modules[0], other[0]]))
    assert list(result.joined) == ["logits"]
    assert "its origin is" in result.refused["sum"]
    assert result.path is None
    merged = ia.compose(result.inputs.modules, "logits")
    same(result.joined["logits"], ia.evaluate(merged, ia.load_data("digits").test))


def test_of_classes_that_repeat_one_seed_is_joined(inputs: ReportInput) -> None:
    zero = inputs.modules[0]
    again = replace(zero, name="again", provenance={**zero.provenance, "seed": 9})
    result = subject_of([*inputs.modules[:2], again])
    assert [m.name for m in result.together] == ["0", "1"]
    assert [m.name for m in result.others] == ["again"]


def test_what_cannot_be_reported(tmp_path: Path, inputs: ReportInput) -> None:
    with pytest.raises(FileError, match="no such file or folder"):
        subject_of(tmp_path / "nothing")
    with pytest.raises(FileError, match="all of them diverged"):
        subject_of(ia.Bank([], ["3"]))
    with pytest.raises(DataError, match="two modules are called '0'"):
        subject_of([inputs.modules[0]] * 2)
    shifted = replace(inputs.modules[1], catalogue=tuple("1023456789"))
    with pytest.raises(CompositionError, match="its catalogue is"):
        subject_of([inputs.modules[0], shifted])
    for wrong in ([3], 3, ia.ModularClassifier()):
        with pytest.raises(DataError, match=r"a report is made of .*composition_"):
            subject_of(wrong)  # type: ignore[arg-type]


def test_a_long_curve_has_points_at_its_ends(inputs: ReportInput) -> None:
    many = [inputs.modules[0]] * 55
    places = steps(many)
    assert len(places) == 20
    assert (places[0], places[-1]) == (1, 55)
