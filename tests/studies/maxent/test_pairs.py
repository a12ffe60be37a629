"""Study `pairs`: the fast merges equal compose and evaluate, the tables equal plain loops."""

import math
import statistics
from itertools import combinations

import pytest
import torch
from fake_data import paper_context
from scipy import stats

import intarsia as ia
from intarsia.data import Data
from intarsia.models import build
from intarsia.modules import Bank, Module
from intarsia.modules.architecture import Architecture
from intarsia.studies import Measured, Store, StudyContext, find_study, run
from intarsia.studies.maxent.pairs import cells, figures, pairs_of, tables
from intarsia.studies.maxent.shared.merging import JOINED, merge_pairs
from intarsia.studies.maxent.shared.ordering import in_paper, order_claim, orders_of
from intarsia.studies.maxent.single import STATES
from intarsia.studies.tables import Difference, Paper, Spread

STUDY = find_study("pairs")
PAIRS = STUDY.scales["small"]["pairs"]


@pytest.fixture(scope="module")
def context(store: Store) -> StudyContext:
    return StudyContext(store, "cpu")


@pytest.fixture(scope="module")
def done(store: Store, context: StudyContext) -> list[Measured]:
    return run(STUDY, STUDY.options("small"), store, context=context)


def by_compose(bank: Bank, pair: object, operator: str, data: Data) -> tuple[float, float]:
    modules = [bank["+".join(classes)] for classes in pair]  # type: ignore[attr-defined]
    samples = data if operator == "sum" else None
    seen = ia.evaluate(ia.compose(modules, operator, samples=samples), data.test)
    return seen.accuracy, seen.entropy


def test_merges_equal_compose_and_evaluate(done: list[Measured], context: StudyContext) -> None:
    data = context.data("digits")
    chosen = [c for c in cells(STUDY.options("small"), context) if c.settings["seed"] == 1]
    for cell in chosen:
        measured = next(m for m in done if m.settings == cell.settings)
        pairs = measured.result["pairs"]
        for state, pruned in STATES.items():
            bank = context.bank(cell.banks[state], pruned=pruned)
            found = merge_pairs(bank, pairs, data)
            for operator in JOINED:
                for number, pair in enumerate(pairs):
                    accuracy, entropy = by_compose(bank, pair, operator, data)
                    assert found[operator]["accuracy"][number] == accuracy
                    seen = found[operator]["entropy"][number]
                    assert seen is None if math.isnan(entropy) else seen == entropy
                kept = measured.result[state][operator]["accuracy"]
                assert kept == pytest.approx(found[operator]["accuracy"], rel=1e-5)


def test_merges_of_normalised_networks_equal_compose(context: StudyContext) -> None:
    data = context.data("digits")
    modules = []
    for seed, name in enumerate("03"):
        torch.manual_seed(seed)
        modules.append(
            Module(
                name=name,
                state=build("resnet18(width=2)", data.shape, 10).state_dict(),
                mask={},
                rewarded=(name,),
                catalogue=data.catalogue,
                architecture=Architecture.of("resnet18(width=2)", data.shape, 10),
                scaling=data.scaling,
                temperature=5.0,
                origin="one",
            )
        )
    pair = (("3",), ("0",))
    result = merge_pairs(Bank(modules), [pair], data)
    for operator in JOINED:
        accuracy, entropy = by_compose(Bank(modules), pair, operator, data)
        assert result[operator] == {"accuracy": [accuracy], "entropy": [entropy]}


def test_a_pair_without_one_of_its_modules_has_no_numbers(
    context: StudyContext, done: list
) -> None:
    cell = next(c for c in cells(STUDY.options("small"), context) if c.settings["size"] == 2)
    pairs = done[0].result["pairs"]
    bank = context.bank(cell.banks["pruned"])
    gone = "+".join(pairs[0][0])
    holey = merge_pairs(Bank(m for m in bank if m.name != gone), pairs, context.data("digits"))
    merged = merge_pairs(bank, pairs, context.data("digits"))
    for operator in JOINED:
        for number, pair in enumerate(pairs):
            missing = gone in ["+".join(classes) for classes in pair]
            expected = None if missing else merged[operator]["accuracy"][number]
            assert holey[operator]["accuracy"][number] == expected
    assert holey["sum"]["accuracy"][0] is None
    assert Spread.of(holey["sum"]["accuracy"]).n < PAIRS
    empty = merge_pairs(Bank([]), pairs, context.data("digits"))
    assert empty["sum"]["entropy"] == [None] * PAIRS


def test_pairs_are_disjoint_and_of_their_size(done: list[Measured]) -> None:
    for measured in done:
        assert len(measured.result["pairs"]) == PAIRS
        for first, second in measured.result["pairs"]:
            assert len(first) == len(second) == measured.settings["size"]
            assert not set(first) & set(second)


def test_no_entropy_where_every_class_is_rewarded(done: list[Measured]) -> None:
    for measured in done:
        entropies = measured.result["pruned"]["sum"]["entropy"]
        assert (entropies == [None] * PAIRS) == (measured.settings["size"] == 5)


def test_tables_are_plain_means_of_pairs_and_seeds(done: list[Measured]) -> None:
    two, four, logits, _ = tables(done)
    assert len(two.rows) == 2 * 3
    assert len(four.rows) == len(logits.rows) == 2 * 2 * 3
    assert {row[2] for row in two.rows} == {"yes"}
    assert [row for row in four.rows if row[2] == "yes"] == list(two.rows)
    for row in four.rows:
        own = [
            m.result["pruned" if row[2] == "yes" else "unpruned"]["sum"]
            for m in done
            if (m.settings["size"], m.settings["objective"]) == (row[1], row[4])
        ]
        values = [v for one in own for v in one["accuracy"]]
        assert isinstance(row[5], Spread)
        assert row[5].n == len(values) == 2 * PAIRS
        assert row[5].mean == pytest.approx(statistics.fmean(values))
        assert row[5].sd == pytest.approx(statistics.stdev(values))
        assert isinstance(row[8], Spread)
        assert row[8].n == (0 if row[1] == 5 else 2 * PAIRS)


def test_best_is_bold_where_scipy_says_so(done: list[Measured]) -> None:
    four = tables(done)[1]
    bold = {tuple(row[1:5]) for row in four.rows if row[5].best}  # type: ignore[union-attr]
    expected = set()
    for size in (2, 5):
        for state, imp in (("pruned", "yes"), ("unpruned", "no")):
            values = {
                o: [v for m in done if (m.settings["size"], m.settings["objective"]) == (size, o)
                    for v in m.result[state]["sum"]["accuracy"]]
                for o in ("xe", "qme", "me")
            }  # fmt: skip
            best = max(values, key=lambda o: statistics.fmean(values[o]))
            tests = [stats.ttest_ind(values[best], values[o], equal_var=False)
                     for o in values if o != best]  # fmt: skip
            if all(test.pvalue < 0.05 for test in tests):
                expected.add((size, imp, "digits", best))
    assert bold == expected


def test_bold_waits_for_every_objective() -> None:
    merged = made({"xe": LOW, "qme": MIDDLE, "me": HIGH})
    under_way = made({"xe": LOW, "qme": HIGH}, data="har")  # me is still to come
    two, four, logits, _ = tables(merged + under_way)
    for table in (two, four, logits):
        bold = {tuple(row[3:5]) for row in table.rows if row[5].best}  # type: ignore[union-attr]
        assert bold == {("mnist", "me")}
        assert any("xe, qme, me are all measured" in note for note in table.notes)
        assert any("pairs that share a module as independent" in note for note in table.notes)
    # a study of two objectives is whole with two
    assert {row[4] for row in tables(under_way)[0].rows if row[5].best} == {"qme"}  # type: ignore[union-attr]
    alone = tables(made({"me": HIGH}))[0]
    assert not alone.rows[0][5].best  # type: ignore[union-attr]
    assert not any("bold" in note for note in alone.all_notes())


def made(accuracies: dict[str, list[float]], **settings: object) -> list[Measured]:
    """Cells with these accuracies, the same in both halves and by both operators."""
    base = {
        "data": "mnist",
        "model": "shallow",
        "preset": "paper",
        "size": 1,
        "seed": 0,
        "pairs": 3,
    }
    return [
        Measured(
            {**base, "objective": objective, **settings},
            {
                state: {o: {"accuracy": values, "entropy": [None] * 3} for o in JOINED}
                for state in STATES
            },
        )
        for objective, values in accuracies.items()
    ]


LOW, MIDDLE, HIGH = [0.1, 0.11, 0.12], [0.5, 0.51, 0.52], [0.9, 0.91, 0.92]


def test_ordering_counts_groups() -> None:
    cells = made({"xe": LOW, "qme": MIDDLE, "me": HIGH})  # holds, and clearly
    cells += made({"xe": LOW, "qme": HIGH, "me": [0.9, 0.92, 0.93]}, data="har")  # holds by a hair
    cells += made({"xe": MIDDLE, "qme": LOW, "me": HIGH}, data="yeast")  # does not
    cells += made({"qme": LOW, "me": HIGH}, data="fashion_mnist")  # one is still missing
    table = tables(cells)[3]
    claims = {(row[2], row[3]): tuple(row[10:]) for row in table.rows}
    assert claims["yes", "mnist"][:2] == ("yes", "yes")
    assert claims["yes", "har"][:2] == ("yes", "no")
    assert claims["no", "yeast"][:2] == ("no", "no")
    assert claims["no", "fashion_mnist"][:4] == (None,) * 4
    assert {own[2:4] for place, own in claims.items() if place[1] != "fashion_mnist"} == {
        ("no", "no")  # one seed is no test over seeds
    }
    assert table.notes[0].startswith(
        "ME > QME > XE in 4 of 6 groups, significant in 2 by Welch's t-test, in 0 over seeds and "
        "in 0 after Holm's correction; the paper's means follow it in"
    )
    assert table.notes[1].startswith("with IMP: ME > QME > XE in 2 of 3 groups")
    row = next(row for row in table.rows if row[2:4] == ["yes", "mnist"])
    assert row[4] == Difference(pytest.approx(0.4))
    assert row[5] == pytest.approx(stats.ttest_ind(HIGH, MIDDLE, equal_var=False).pvalue)
    assert row[6] is None


def test_an_order_is_tested_over_seeds_and_corrected_for_all_groups() -> None:
    """Seeds differ far more than objectives: pairs taken for independent see nothing of it.

    Twelve groups: one clear, one so-so, the others out of order.
    """
    groups = {}
    for number in range(12):
        step = {0: 0.1, 1: 0.02}.get(number, -0.1)
        own: dict[str, dict[int, list[float | None]]] = {}
        for place, objective in enumerate(("xe", "qme", "me")):
            luck = [((seed * 7 + place * 3) % 5) / 250 for seed in range(5)]
            own[objective] = {s: [s / 5 + place * step + luck[s]] for s in range(5)}
        groups["shallow", 1, True, f"d{number}"] = own
    names = [group[3] for group in groups]
    steps = [
        max(
            stats.ttest_rel(
                *([v for values in own[o].values() for v in values] for o in step)
            ).pvalue
            for step in (("me", "qme"), ("qme", "xe"))
        )
        for own in list(groups.values())[:2]
    ]
    assert steps[0] * 12 < 0.05 < steps[1] * 11
    assert steps[1] < 0.05
    orders = orders_of(groups, ())
    assert [orders[group].seeds for group in groups][:2] == pytest.approx(steps)
    assert [n for n, o in zip(names, orders.values(), strict=True) if o.means] == ["d0", "d1"]
    assert not any(order.welch < 0.05 for order in orders.values())
    claim = order_claim(groups, ())
    counts = {key: claim.evidence[key] for key in ("by Welch's test", "over seeds")}
    assert counts == {"by Welch's test": 0, "over seeds": 2}
    assert claim.evidence["over seeds, Holm"] == 1
    survives = "Significant over seeds after Holm's correction: d0 (shallow, |R| = 1, with IMP)."
    assert survives in claim.details
    dead = order_claim(groups, list(groups)[:1])
    assert (dead.evidence["count"], dead.evidence["of"], dead.evidence["dead"]) == (1, 12, 1)
    assert dead.evidence["over seeds"] == 1


@pytest.mark.parametrize(
    ("classes", "size", "text"),
    [
        (10, 2, "10 pairs of 5 sets of classes, all from one partition of the classes"),
        (10, 5, "10 pairs of 20 sets of classes, from several partitions of the classes"),
        (4, 2, "3 pairs of 6 sets of classes, from several partitions of the classes"),
        (10, 1, "10 pairs of 10 sets of classes, all from one partition of the classes"),
    ],
)
def test_it_is_said_where_pairs_come_from(classes: int, size: int, text: str) -> None:
    cells = made({"me": HIGH}, size=size)
    cells[0].result["pairs"] = pairs_of([str(n) for n in range(classes)], size)  # type: ignore[index]
    assert f"|R| = {size}: {text} (MNIST)." in STUDY.judge(cells).details
    assert "the same for every seed" in STUDY.judge(cells).text
    assert "partition" not in STUDY.judge(made({"me": HIGH})).text  # cells that do not say


def test_the_paper_s_own_ordering() -> None:
    assert in_paper("shallow", 1, True, "mnist") is True  # 0.991 > 0.973 > 0.708
    assert in_paper("deep", 1, False, "mnist") is False  # 0.819 < 0.978
    assert in_paper("mlp(32)", 1, True, "digits") is None


def test_the_paper_stands_beside() -> None:
    two, four, logits, _ = tables(made({"me": [0.98, 0.99, 1.0]}))
    assert two.rows[0][6:8] == [Paper(0.991, 0.005), Difference(pytest.approx(-0.001))]
    assert four.rows[0][6] == Paper(0.97, 0.012, suspect=True)
    assert four.rows[0][7] == Difference(pytest.approx(0.02))
    assert [row[6] for row in logits.rows] == [None, Paper(0.992)]


def test_rows_come_in_the_order_of_the_paper() -> None:
    cells = [m for model in ("shallow", "deep") for size in (2, 1) for data in ("har", "mnist")
             for m in made({"me": HIGH}, model=model, size=size, data=data)]  # fmt: skip
    rows = [row[:4] for row in tables(cells)[1].rows]
    expected = [[m, s, i, d] for m in ("shallow", "deep") for s in (1, 2) for i in ("no", "yes")
                for d in ("har", "mnist")]  # fmt: skip
    assert rows == expected


def test_any_part_of_the_cells_makes_tables_and_figures(done: list[Measured]) -> None:
    for some in [*combinations(done, 1), tuple(done[::2])]:
        assert len(tables(some)) == 4
        assert figures(some)
    assert set(figures(done)) == {"pairs-digits-imp", "pairs-digits-unpruned"}
    lost = made({"me": [None, None, None]})  # type: ignore[list-item]
    assert len(tables(lost)) == 4
    assert figures(lost) == {}


def test_paper_form_is_the_whole_of_table_4() -> None:
    context = paper_context()
    result = list(cells(STUDY.options("paper"), context))
    kinds = {tuple(c.settings[k] for k in ("model", "data", "size", "objective")) for c in result}
    assert len(result) == 156 // 2 * 5  # both halves in one cell
    assert len(kinds) == 156 // 2
    assert len({cell.key for cell in result}) == len(result)
    single = find_study("single")
    shared = {
        p.key for c in single.cells(single.options("paper"), context) for p in c.banks.values()
    }
    ones = [c for c in result if (c.settings["size"], c.settings["objective"]) == (1, "me")]
    assert {p.key for c in ones for p in c.banks.values()} == shared


def test_released_has_a_bank_of_its_own_for_unpruned_modules(context: StudyContext) -> None:
    for preset, plans in (("paper", 1), ("released", 2)):
        (cell, *_) = cells(STUDY.options("small", preset=preset), context)
        assert len({plan.key for plan in cell.banks.values()}) == plans


def test_groups_that_pruning_cut_through_count_as_out_of_order() -> None:
    dead = {"accuracy": [0.5, 0.5], "entropy": [2.0, 2.0]}
    alive = {"xe": 0.5, "qme": 0.7, "me": 0.9}

    def cell(objective: str) -> Measured:
        own = {"accuracy": [alive[objective]] * 2, "entropy": [2.0, 2.0]}
        settings = {"data": "mnist", "model": "shallow", "size": 1, "objective": objective}
        halves = {"unpruned": {"sum": own, "logits": own}, "pruned": {"sum": dead, "logits": dead}}
        return Measured({**settings, "seed": 0, "preset": "paper", "recipe": {}}, halves)

    table = next(t for t in tables([cell(name) for name in alive]) if "XE?" in t.title)
    ordered = table.columns.index("ordered")
    assert {row[2]: row[ordered] for row in table.rows} == {"no": "yes", "yes": "dead"}
    assert "ME > QME > XE in 1 of 2 groups (1 dead)" in table.notes[0]
    assert any(note.startswith("counted as not in order: MNIST with IMP") for note in table.notes)
    assert any("with IMP: ME > QME > XE in 0 of 1 groups (1 dead)" in n for n in table.notes)
