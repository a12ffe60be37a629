"""Studies `cifar10` and `cifar100` on two hundred pictures: the code that a GPU runs in full."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from colour_data import CLASSES, NAME, colours_known

import intarsia as ia
from benchmarks.record import made_by
from intarsia.errors import StudyError
from intarsia.studies import Measured, Store, StudyContext, find_study, run
from intarsia.studies.archive import Archive, load_archive, make_archive, save_archive
from intarsia.studies.runners.bank_training import train_plans
from intarsia.studies.scale import cifar10_study as ten
from intarsia.studies.scale import cifar100_study as hundred
from intarsia.studies.scale.bank_logits import SplitLogits, calibrated_accuracy
from intarsia.studies.verdict import Findings

ROOT = Path(__file__).resolve().parents[3]
RECIPE = {"epochs": 6, "batch": 16, "learning_rate": 1e-2, "temperature": 1.0, "select": "last"}
SMALL: dict[str, dict[str, Any]] = {
    "cifar10": {"models": ["vgg11(4)"], "seeds": 1, "flips": True},
    "cifar100": {
        "models": ["resnet18(2)"],
        "seeds": 1,
        "flips": True,
        "recipe": {**RECIPE, "epochs": 1},
        "arms": {"plain": {}, "unweighted": {"balance": 0.0, "objective": "me(reward=3.0)"}},
        "sizes": [2],
        "merge_sizes": [2, 4, 7],
    },
}


@pytest.mark.parametrize("name", SMALL)
def test_digits_are_not_mirrored_where_pictures_are(name: str) -> None:
    study = find_study(name)
    flips = {scale: study.options(scale)["flips"] for scale in ("paper", "small")}
    assert (study.options("small")["data"], flips) == (["digits"], {"paper": True, "small": False})


def planned(name: str, context: StudyContext, **given: Any) -> list[Any]:
    study = find_study(name)
    options = {"data": [NAME], "recipe": RECIPE, **SMALL[name], **given}
    return study.plan(study.options("small", **options), context)


def archived(name: str, folder: Path) -> Archive:
    """A study that was run, in a store of this folder."""
    study, store = find_study(name), Store(folder / "store")
    options = study.options("small", **{"data": [NAME], "recipe": RECIPE, **SMALL[name]})
    context = StudyContext(store, "cpu")
    run(study, options, store, context=context)
    return make_archive(study, options, study.plan(options, context), store)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Archives of both studies, and the store of their banks."""
    result = tmp_path_factory.mktemp("cifar")
    with colours_known():
        for name in SMALL:
            save_archive(result / f"study_{name}.json", archived(name, result))
    return result


@pytest.fixture
def ten_cells(folder: Path) -> list[Measured]:
    return list(load_archive(folder / "study_cifar10.json").measured)


@pytest.fixture
def hundred_cells(folder: Path) -> list[Measured]:
    """Those of the one seed, and again as if another had given the same numbers."""
    cells = load_archive(folder / "study_cifar100.json").measured
    return [replace(c, settings={**c.settings, "seed": seed}) for seed in (0, 1) for c in cells]


@pytest.fixture
def context(tmp_path: Path) -> StudyContext:
    return StudyContext(Store(tmp_path / "store"), "cpu")


def test_every_way_to_join_is_measured(ten_cells: list[Measured]) -> None:
    assert len(ten_cells) == len(ten.WAYS)
    ways = {way: values[0] for way, values in ten.ways_of(ten_cells).items()}
    assert list(ways) == list(ten.LABELS.values())
    joint = ways[ten.LABELS["joint"]]
    assert joint["test"] > 0.6
    assert ways[ten.LABELS["logits"]]["test"] > 0.6
    assert ways[ten.LABELS["logits"]]["nonzero"] == 4 * joint["nonzero"]
    assert 0.9 * joint["nonzero"] < ways[ten.LABELS["inlay"]]["nonzero"] <= joint["nonzero"]
    assert ways[ten.LABELS["territory"]]["nonzero"] < joint["nonzero"]
    (inlay,) = (cell.result for cell in ten_cells if cell.settings["way"] == "inlay")
    assert inlay["built"]
    assert inlay["exact"]
    assert inlay["off"] < 1e-4


def test_ten_are_shown(ten_cells: list[Measured]) -> None:
    study = find_study("cifar10")
    tables = study.tables(ten_cells)
    assert [row[0] for row in tables[0].rows] == list(ten.LABELS.values())
    assert tables[0].rows[0][-1].mean == 1
    assert "mirror image" in tables[0].notes[-1]
    (figure,) = study.figures(ten_cells).values()
    assert len(figure.axes) == 1
    said = study.judge(ten_cells)
    assert len(said.claims) == 4
    assert said.line.startswith("colours, vgg11(4): ")


def test_classes_are_shown_one_by_one(ten_cells: list[Measured]) -> None:
    data = ia.load_data(NAME)
    counts = torch.tensor([(data.test.y == data.catalogue.index(c)).sum() for c in sorted(CLASSES)])
    whole, classes = find_study("cifar10").tables(ten_cells)
    shown = ["joint", "logits", "territory", "inlay"]
    assert classes.columns == ["class", *(ten.LABELS[way] for way in shown)]
    assert [row[0] for row in classes.rows] == sorted(CLASSES)
    accuracies = {row[0]: row[1].mean for row in whole.rows}
    for place, label in enumerate(classes.columns[1:], 1):
        each = torch.tensor([row[place].mean for row in classes.rows]).double()
        expected = float((each * counts).sum() / counts.sum())
        assert accuracies[label] == pytest.approx(expected, abs=1e-5)
    older = [replace(c, result=_without_classes(c.result)) for c in ten_cells]
    assert len(find_study("cifar10").tables(older)) == 1


def _without_classes(result: dict[str, Any]) -> dict[str, Any]:
    """As cells were before they had accuracies by class."""
    return {
        key: {k: v for k, v in value.items() if k != ten.BY_CLASS}
        if isinstance(value, dict)
        else value
        for key, value in result.items()
    }


def test_modules_join_from_one_to_all(hundred_cells: list[Measured]) -> None:
    by_way: dict[str, list[Measured]] = {}
    for cell in hundred_cells:
        by_way.setdefault(cell.settings["way"], []).append(cell)
    assert {way: len(cells) for way, cells in by_way.items()} == {
        hundred.JOINT: 4,
        hundred.ONE_CLASS: 4,
        hundred.GROUPS: 2,
    }
    for cell in by_way[hundred.ONE_CLASS]:
        assert cell.result["sizes"] == [1, 2, 3, 4]
        assert cell.result["closed"][0] == 1
        assert cell.result["closed"][-1] == cell.result["open"][-1] == cell.result["test"]
        assert list(cell.result["merged"]) == ["2", "4"]  # 7 are more than there are
    for cell in by_way[hundred.GROUPS]:
        assert cell.result["sizes"] == [2, 4]
        assert list(cell.result["merged"]) == ["4"]
    assert {cell.settings["size"] for cell in by_way[hundred.JOINT]} == {2, 4}


def test_a_hundred_are_shown(hundred_cells: list[Measured]) -> None:
    study = find_study("cifar100")
    whole, *by_size = study.tables(hundred_cells)
    assert len(whole.rows) == 1 + 3 * 3
    assert len(by_size) == 3
    assert [row[0] for row in by_size[0].rows] == [2, 4]
    (figure,) = study.figures(hundred_cells).values()
    assert len(figure.axes) == 1
    said = study.judge(hundred_cells)
    assert sum(claim.holds is not None for claim in said.claims) == 3 + 2
    assert sum("paired by seed" in claim.text for claim in said.claims) == 1


def test_seeds_may_be_merged_at_other_sizes(hundred_cells: list[Measured]) -> None:
    """As those that another run measured, with other `merge_sizes`."""
    cells = [
        replace(cell, result={**cell.result, "merged": {"2": cell.result["merged"]["2"]}})
        if cell.settings["seed"] and cell.settings["way"] == hundred.ONE_CLASS
        else cell
        for cell in hundred_cells
    ]
    study = find_study("cifar100")
    assert len(study.tables(cells)) == 4
    (figure,) = study.figures(cells).values()
    line = next(one for one in figure.axes[0].lines if "one network" in str(one.get_label()))
    assert list(line.get_xdata()) == [2, 4]


def test_the_page_is_made_of_archives(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs" / "build")
    import cifar_pages
    from benchmarks.experiments.cifar_removal import removals

    monkeypatch.setattr(cifar_pages, "RESULTS", folder / "none")
    assert "Nothing has been measured yet." in cifar_pages.cifar(dict)
    archive = load_archive(folder / "study_cifar10.json")
    (row,) = removals(archive, folder / "store", archive, 4)
    assert (row["model"], row["classes"], row["exact"]) == ("vgg11(4)", 4, 4)
    seconds = {key: e["seconds"] for e in archive.events for key in e.get("keys", [])}
    banks = {cell.settings["way"]: cell.result["bank"] for cell in archive.measured}
    assert row["retraining"] == seconds[banks["joint"]]
    made = {**made_by(cifar_pages.__file__), "rows": [row]}
    (folder / "cifar_removal.json").write_text(json.dumps(made))
    monkeypatch.setattr(cifar_pages, "RESULTS", folder)
    page = cifar_pages.cifar(lambda name: json.loads((folder / f"{name}.json").read_text()))
    for name in SMALL:
        study, cells = find_study(name), load_archive(folder / f"study_{name}.json").measured
        for claim in study.judge(cells).claims:
            assert f"- {claim.marked}" in page
    assert f"| colours | vgg11(4) | joint | 1 | 1 | {seconds[banks['joint']]:.1f} |" in page
    assert "| colours | vgg11(4) | modules and inlay, magnitude | 1 | 4 |" in page
    assert "| colours | resnet18(2) | joint, 2 classes | 1 | 1 |" in page
    assert "| colours | vgg11(4) | 0 | 4 of 4 |" in page
    assert "Not measured: `fastnet`; `resnet18(16)`; `resnet18(64)`; `vgg11`." in page


def test_ways_without_a_cell_are_named(ten_cells: list[Measured]) -> None:
    kept = [cell for cell in ten_cells if cell.settings["way"] != "territory"]
    assert ten.unmeasured(ten_cells, ["vgg11(4)"]) == {}
    assert ten.unmeasured(kept, ["vgg11(4)"]) == {"vgg11(4)": ["territory"]}
    assert ten.unmeasured(kept, ["fastnet"]) == {"fastnet": list(ten.WAYS)}


def test_plans_have_what_the_options_say(context: StudyContext) -> None:
    models = ["vgg11(4)", "resnet18(4)"]
    by_model = {"vgg11(4)": {"epochs": 5, "objective": "me(reward=2.0)"}}
    given: dict[str, Any] = {"models": models, "by_model": by_model}
    cells = planned("cifar10", context, **given, joint={"learning_rate": 0.5})
    recipes = {(c.settings["model"], c.settings["way"]): c.banks["modules"].recipe for c in cells}
    assert recipes["vgg11(4)", "modules"].epochs == 5
    assert recipes["resnet18(4)", "modules"].epochs == RECIPE["epochs"]
    assert recipes["vgg11(4)", "joint"].learning_rate == 0.5
    assert recipes["vgg11(4)", "modules"].objective == "me(reward=2.0)"
    assert recipes["resnet18(4)", "modules"].objective == "me"
    assert recipes["vgg11(4)", "modules"] == recipes["vgg11(4)", "inlay"]
    assert recipes["vgg11(4)", "territory"].pruning == "territory"
    inlay = recipes["vgg11(4)", "inlay"]
    assert (inlay.rounds, inlay.pruning) == (1, "magnitude")
    assert 0.75 < inlay.sparsity < 0.85
    assert recipes["vgg11(4)", "joint"].objective == "smoothing(0.1)"


def test_a_model_s_modules_and_joint_network_may_differ(context: StudyContext) -> None:
    own = {"epochs": 5, "modules": {"batches": "balanced(2)", "epochs": 7}, "joint": {"epochs": 6}}
    cells = planned("cifar10", context, models=["vgg11(4)"], by_model={"vgg11(4)": own})
    recipes = {c.settings["way"]: c.banks["modules"].recipe for c in cells}
    assert [(way, r.epochs, r.batches) for way, r in recipes.items()] == [
        ("joint", 6, "shown"),
        ("modules", 7, "balanced(amount=2)"),
        ("territory", 7, "balanced(amount=2)"),
        ("inlay", 7, "balanced(amount=2)"),
    ]
    cells = planned(
        "cifar10", context, models=["vgg11(4)"], by_model={"vgg11(4)": own}, joint={"epochs": 9}
    )
    assert cells[0].banks["modules"].recipe.epochs == 9


def test_dense_modules_are_the_first_round_of_pruned_ones(context: StudyContext) -> None:
    """To the last bit, so that they need not be trained by themselves."""
    plans = {}
    for shared in (True, False):
        cells = planned("cifar10", context, first_round=shared, recipe={**RECIPE, "epochs": 1})
        plans[shared] = next(c.banks["modules"] for c in cells if c.settings["way"] == "modules")
    assert plans[True] != plans[False]
    store = Store(context._store.path)
    for plan in plans.values():
        (bank,) = train_plans([plan], context.data_of(plan), context.device)
        store.add_bank(plan, bank)
    ours, alone = (context.bank(plan, pruned=False) for plan in plans.values())
    for one, other in zip(ours, alone, strict=True):
        assert one.nonzero == one.parameters
        assert all(torch.equal(one.state[name], other.state[name]) for name in other.state)
    for other in ({"pruning_epochs": 9}, {"learning_rate": 0.5}):  # another training
        cells = planned("cifar10", context, inlay={"rounds": 1, **other})
        plan = next(c.banks["modules"] for c in cells if c.settings["way"] == "modules")
        assert plan.recipe.rounds == 0


def test_territories_fall_out_where_a_layer_is_too_narrow(context: StudyContext) -> None:
    ways = {cell.settings["way"] for cell in planned("cifar10", context, models="vgg11(2)")}
    assert ways == {"joint", "modules", "inlay"}


def test_arms_change_the_recipe_of_modules_alone(context: StudyContext) -> None:
    cells = planned("cifar100", context, seeds=1)
    by = {
        (c.settings["way"], c.settings.get("arm"), c.settings.get("size")): c.banks[
            "modules"
        ].recipe
        for c in cells
    }
    plain, other = (by[hundred.ONE_CLASS, arm, None] for arm in ("plain", "unweighted"))
    assert (plain.balance, plain.objective) == (0.0, "me")
    assert (other.balance, other.objective) == (0.0, "me(reward=3.0)")
    # half of the classes have half of the samples, so their network trains for twice as many epochs
    assert by[hundred.JOINT, None, 2].epochs == 2 * by[hundred.JOINT, None, 4].epochs == 2
    assert by[hundred.JOINT, None, 2].partition == [["red", "green"]]
    assert by[hundred.GROUPS, "plain", None].partition == [["red", "grey"], ["green", "blue"]]


def test_groups_follow_coarse_labels_where_these_fit(data: ia.Data, context: StudyContext) -> None:
    assert hundred.class_groups(data, NAME, 2, context) == [("red", "grey"), ("green", "blue")]
    some = ia.load_data(NAME, classes=["blue", "grey", "green", "red"])
    assert hundred.class_groups(some, NAME, 2, context) == [("red", "grey"), ("green", "blue")]
    few = ia.load_data(NAME, classes=["blue", "grey"])
    assert hundred.class_groups(few, NAME, 1, context) == [("grey",), ("blue",)]
    three = hundred.class_groups(data, NAME, 3, context)
    assert three == [("red", "green", "blue"), ("grey",)]
    digits = ia.load_data("digits", classes=["3", "1", "7"])
    assert hundred.class_groups(digits, "digits", 2, context) == [("3", "1"), ("7",)]


def test_the_order_of_classes_is_the_catalogue_s_or_the_seed_s() -> None:
    assert hundred.class_order(CLASSES, "catalogue", 3) == CLASSES
    orders = [hundred.class_order(CLASSES, "shuffled", seed) for seed in range(5)]
    assert all(sorted(order) == sorted(CLASSES) for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    assert orders[2] == hundred.class_order(CLASSES, "shuffled", 2)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("cifar10", {"ways": ["sum"]}, "option 'ways' has 'sum'"),
        ("cifar10", {"by_model": {"vgg": {}}}, "'by_model' has 'vgg', which is not among"),
        ("cifar10", {"by_model": {"vgg11(4)": 3}}, "'by_model', 'vgg11.4.', is 3"),
        ("cifar10", {"by_model": {"vgg11(4)": {"modules": 3}}}, "'vgg11.4.', 'modules', is 3"),
        ("cifar10", {"joint": {"seeds": [1]}}, "'joint' has 'seeds', which the study sets itself"),
        ("cifar10", {"inlay": {"model": "mlp"}}, "'inlay' has 'model'"),
        ("cifar10", {"keep_banks": "no"}, "option 'keep_banks' is 'no'"),
        ("cifar100", {"arms": {}}, "option 'arms' is {}: expected names"),
        ("cifar100", {"arms": {"plain": {"partition": "each"}}}, "'plain', has 'partition'"),
        ("cifar100", {"order": "alphabet"}, "option 'order' is 'alphabet': expected catalogue or"),
        ("cifar100", {"operators": ["fisher"]}, "'fisher', which needs samples"),
        ("cifar100", {"sizes": [0]}, "option 'sizes' has 0"),
    ],
)
def test_what_cannot_be_measured_is_named(
    name: str, given: dict[str, Any], message: str, context: StudyContext
) -> None:
    with pytest.raises(StudyError, match=message):
        planned(name, context, **given)


def test_the_verdict_on_ten_is_what_the_numbers_say() -> None:
    def cells(logits: float, inlay: float, size: int) -> list[Measured]:
        own = {"data": "cifar10", "model": "m", "seed": 0}
        score = {"validation": 0.5, "nonzero": 100}
        return [
            Measured({**own, "way": "joint"}, {"joint": {**score, "test": 0.90}}),
            Measured({**own, "way": "modules"}, {"logits": {**score, "test": logits}}),
            Measured(
                {**own, "way": "inlay", "pruning": "magnitude"},
                {"inlay": {**score, "test": inlay, "nonzero": size}, "exact": True},
            ),
        ]

    def holds(*numbers: Any) -> list[bool | None]:
        return [claim.holds for claim in ten.verdict(Findings(cells(*numbers))).claims]

    assert holds(0.89, 0.875, 100) == [True, True, True]
    assert holds(0.889, 0.875, 100) == [False, True, True]
    assert holds(0.95, 0.874, 100) == [True, False, True]
    assert holds(0.95, 0.95, 101) == [True, False, True]  # better, but larger
    assert "larger than the joint" in ten.verdict(Findings(cells(0.95, 0.95, 101))).claims[1].text
    line = ten.verdict(Findings(cells(0.89, 0.88, 100))).line
    assert line == "CIFAR-10, m: 0.900 joint, 0.890 logits, 0.880 inlay"


def test_an_inlay_that_does_not_add_up_is_told() -> None:
    own = {"data": "d", "model": "m", "way": "inlay", "pruning": "magnitude"}
    for offs, holds in (((1e-7, 1e-5), True), ((1e-7, 0.02), False)):
        cells = [
            Measured({**own, "seed": seed}, {"built": True, "off": off})
            for seed, off in enumerate(offs)
        ]
        (claim,) = ten.verdict(Findings(cells)).claims
        assert (claim.holds, claim.n) == (holds, 2)


def test_ten_under_way_are_compared_with_nothing() -> None:
    """Without the joint network of their seed it is open how far below it they lie."""
    own = {"data": "d", "model": "m"}
    score = {"validation": 0.5, "test": 0.5, "nonzero": 9}
    modules = Measured({**own, "way": "modules", "seed": 0}, {"logits": score})
    inlay = Measured({**own, "way": "inlay", "seed": 0, "pruning": "magnitude"}, {"inlay": score})
    joint = Measured({**own, "way": "joint", "seed": 1}, {"joint": score})
    for cells in ([modules, inlay], [modules, inlay, joint]):
        assert ten.verdict(Findings(cells)).claims == []


def test_a_joint_network_has_to_be_a_good_one() -> None:
    own = {"data": "cifar10", "model": "resnet18(64)", "way": "joint"}
    for tests, holds in (((0.94, 0.94), True), ((0.95, 0.929), False)):
        cells = [
            Measured({**own, "seed": seed}, {"joint": {"test": test, "nonzero": 1}})
            for seed, test in enumerate(tests)
        ]
        (claim,) = ten.verdict(Findings(cells)).claims
        assert (claim.holds, claim.n) == (holds, 2)


def test_the_better_pruning_is_chosen_on_validation() -> None:
    own = {"data": "d", "model": "m", "seed": 0}
    cells = [Measured({**own, "way": "joint"}, {"joint": {"test": 0.9, "nonzero": 9}})]
    for pruning, validation, test in (("a", 0.8, 0.7), ("b", 0.7, 0.9)):
        result = {"inlay": {"validation": validation, "test": test, "nonzero": 9}}
        cells.append(Measured({**own, "way": "inlay", "pruning": pruning}, result))
    (claim,) = ten.verdict(Findings(cells)).claims
    assert claim.holds is False
    assert math.isclose(claim.evidence["difference"], -0.2)


def test_the_verdict_on_a_hundred_is_what_the_numbers_say() -> None:
    def judged(*logits: float) -> list[bool | None]:
        own = {"data": "d", "model": "m", "seed": 0}
        joint = [
            Measured({**own, "way": hundred.JOINT, "size": size}, {"test": 0.8, "of": 3})
            for size in (2, 3)
        ]
        result = {"sizes": [1, 2, 3], "closed": list(logits), "test": logits[-1], "merged": {}}
        modules = Measured({**own, "way": hundred.ONE_CLASS, "arm": "plain"}, result)
        return [claim.holds for claim in hundred.verdict(Findings([*joint, modules])).claims]

    assert judged(1.0, 0.75, 0.77) == [True, True]
    assert judged(1.0, 0.75, 0.76) == [False, True]  # within the grace, and yet too far at the end
    assert judged(1.0, 0.74, 0.80) == [True, False]


def test_a_study_under_way_is_compared_with_nothing_smaller(
    hundred_cells: list[Measured],
) -> None:
    """Without the joint network of all classes, that of half of them does not take its place."""
    study = find_study("cifar100")
    some = [cell for cell in hundred_cells if cell.settings.get("size") != 4]
    assert [row[2] for row in study.tables(some)[0].rows] == [None] * 9
    assert [claim.holds for claim in study.judge(some).claims] == [None]


def test_logits_may_be_left_as_they_are(data: ia.Data, bank: ia.Bank) -> None:
    test = SplitLogits.of(bank, data.test, torch.device("cpu"))
    assert calibrated_accuracy(bank, data, test, 0) is None


def test_modules_that_diverged_are_named() -> None:
    own = {"data": "cifar10", "model": "m", "seed": 3, "way": "modules"}
    for study in ("cifar10", "cifar100"):
        said = find_study(study).judge([Measured({**own, "arm": "x"}, {"diverged": ["a", "b"]})])
        assert said.failed == {"CIFAR-10, m, modules, x, seed 3": "where 2 modules diverged"}
        assert find_study(study).figures([Measured(own, {"diverged": ["a"]})]) == {}
