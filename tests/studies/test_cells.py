"""Keys: what changes a cell's digest, and what must not."""

import pytest

from intarsia.studies import Cell, Store, StudyContext
from intarsia.studies.cells import rounded
from intarsia.studies.maxent.pairs import pairs_of, sets_of
from intarsia.studies.plans import identity

KEYS = ["7615594c201fb74a", "698bb95ba341d3c8", "6cf8ba6b267ec3e9"]


@pytest.fixture
def context(tmp_path):
    return StudyContext(Store(tmp_path / "store"), "cpu")


def plan_of(context, seed=0, **recipe):
    return context.plan("digits", "mlp(8)", [("0",), ("1",)], seed, **recipe)


def test_a_setting_added_at_its_neutral_value_keeps_the_key(context):
    banks = {"modules": plan_of(context)}
    old = Cell("s", {"data": "digits"}, banks)
    neutral = {"noise": 0.0}
    assert Cell("s", {"data": "digits", "noise": 0.0}, banks, neutral).key == old.key
    assert Cell("s", {"data": "digits", "noise": 0.1}, banks, neutral).key != old.key


def test_a_changed_default_changes_the_key(context):
    """Settings count with their value, whether it is the default or not."""
    banks = {"modules": plan_of(context)}
    before, after = (Cell("s", {"points": p}, banks) for p in (21, 41))
    assert before.key != after.key
    assert identity({"points": 21}, {}) == {"points": 21}


def test_a_key_covers_study_settings_and_banks(context):
    cells = [
        Cell("a", {"x": 1}, {"m": plan_of(context)}),
        Cell("b", {"x": 1}, {"m": plan_of(context)}),
        Cell("a", {"x": 2}, {"m": plan_of(context)}),
        Cell("a", {"x": 1}, {"m": plan_of(context, 1)}),
        Cell("a", {"x": 1}, {"m": plan_of(context, epochs=3)}),
        Cell("a", {"x": 1}, {"n": plan_of(context)}),
    ]
    assert len({cell.key for cell in cells}) == len(cells)
    assert Cell("a", {"x": 1}, {"m": plan_of(context)}).key == cells[0].key


def test_keys_do_not_change_over_time(context):
    """Stores of today are read by tomorrow's versions: these digests must stay."""
    me = plan_of(context, epochs=2, sparsity=0.9)
    xe = plan_of(context, epochs=2, sparsity=0.9, objective="xe", batches="all")
    cell = Cell("single", {"data": "digits", "seed": 0}, {"modules": me})
    assert [me.key[:16], xe.key[:16], cell.key[:16]] == KEYS


def test_a_later_version_of_the_measuring_code_is_another_cell(context):
    banks = {"modules": plan_of(context)}
    keys = {Cell("s", {}, banks, version=version).key for version in (1, 2, 3)}
    assert len(keys) == 3


def test_unpruned_modules_are_the_first_round_under_paper_only(context):
    assert plan_of(context, pruned=False) == plan_of(context)
    released = [plan_of(context, preset="released", pruned=p) for p in (True, False)]
    assert released[0].key != released[1].key
    assert released[1].recipe.rounds == 0


def test_a_whole_number_is_the_same_setting_with_a_point(context):
    assert plan_of(context, temperature=5).key == plan_of(context, temperature=5.0).key
    assert plan_of(context, temperature=4).key != plan_of(context, temperature=5).key


def test_the_presets_networks(context):
    deep = context.plan("digits", "deep", [("0",)], 0)
    assert deep.recipe.model == {"name": "mlp", "hidden": [512, 256], "dropout": 0.5}
    loose = context.plan("digits", "deep", [("0",)], 0, preset="released", pruned=False)
    assert loose.recipe.model["dropout"] == 0.3


def test_numbers_are_cut_to_six_digits():
    assert rounded({"a": [0.12345678, 1, True, None, "x"]}) == {"a": [0.123457, 1, True, None, "x"]}
    assert rounded(1.23456789e-9) == 1.23457e-9


@pytest.mark.parametrize(
    ("classes", "size", "pairs", "sets"),
    [(10, 1, 10, 10), (10, 2, 10, 5), (10, 5, 10, 20), (6, 2, 10, 12), (4, 2, 3, 6), (4, 1, 6, 4)],
)
def test_pairs_are_disjoint_distinct_and_of_few_sets(classes, size, pairs, sets):
    catalogue = [str(c) for c in range(classes)]
    result = pairs_of(catalogue, size)
    assert len(result) == len({frozenset(pair) for pair in result}) == pairs
    assert all(len(a) == len(b) == size and not set(a) & set(b) for a, b in result)
    assert len(sets_of(result)) <= sets
    assert pairs_of(catalogue, size, seed=1) != result or pairs < 10
