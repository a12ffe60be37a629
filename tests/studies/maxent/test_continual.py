"""Classes one by one: figures by hand, by plain compositions, and chosen on validation samples."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

import intarsia as ia
from intarsia.data.negatives import read_negatives
from intarsia.errors import StudyError
from intarsia.plots import svg
from intarsia.studies import Measured, Store, StudyContext, find_study
from intarsia.studies.maxent.continual import added, arrivals, fine_tuned, prefixes, trained_jointly
from intarsia.studies.maxent.shared.baselines import UNPRUNED, fine_tune, untrained
from intarsia.training.settings.presets import NEGATIVES as MADE
from intarsia.training.tasks import stream

CPU = torch.device("cpu")
STUDY = find_study("continual")
OPTIONS = STUDY.options("small", seeds=1, negatives=["all", "earlier"])
EARLIER = " (no later classes)"
NETWORK = "mlp(8, dropout=0)"
FAST = {"device": "cpu", "progress": False, "model": NETWORK, "epochs": 2, "learning_rate": 0.01}
ORDER = ["3", "0", "8", "5"]
TUNING = {"rates": [1e-2, 1e-4], "passes": 2, "batch": 32}


def test_figures_of_arrivals_by_hand() -> None:
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    one_hot = torch.eye(3)
    logits = [
        one_hot[[2, 2, 2, 2, 2, 2]],  # class 2 is there
        one_hot[[0, 1, 0, 0, 2, 0]],  # and class 0; one of its samples is taken for 1
        one_hot[[0, 1, 1, 1, 0, 1]],  # and class 1
    ]
    logits[1][1, 0] = 0.5  # second choice, the first of those seen
    result = arrivals(logits, labels, [2, 0, 1])
    assert result == {
        "seen": [1.0, 0.5, 0.5],
        "among": [1.0, 0.75, 0.5],
        "earlier": [None, 0.5, 0.25],
        "new": [1.0, 0.5, 1.0],
        "forgetting": [1.0, 0.0],
    }


@pytest.mark.parametrize("how", ["logits", "sum"])
def test_added_modules_are_compositions_of_the_first(
    how: str, parts: ia.Bank, data: ia.Data
) -> None:
    result = added(parts, how, ORDER, data.test, CPU)
    assert result is not None
    then = []
    for n in range(1, len(ORDER) + 1):
        seen = ia.evaluate(ia.compose([parts[c] for c in ORDER[:n]], how), data.test)
        assert result["seen"][n - 1] == seen.accuracy
        assert result["new"][n - 1] == seen.accuracy_per_class[int(ORDER[n - 1])]
        then.append(seen.accuracy_per_class)
    drops = [then[k][int(c)] - then[-1][int(c)] for k, c in enumerate(ORDER[:-1])]
    assert result["forgetting"] == pytest.approx(drops)
    assert result["exact"] is True


def test_modules_that_diverged_leave_their_way_out(parts: ia.Bank, data: ia.Data) -> None:
    fewer = ia.Bank([m for m in parts if m.name != "8"])
    assert added(fewer, "logits", ORDER, data.test, CPU) is None
    assert added(fewer, "logits", ["3", "0"], data.test, CPU) is not None
    assert trained_jointly(fewer, ["3", "0"], data.test, CPU) is None


def test_joint_training_takes_the_network_of_each_prefix(data: ia.Data) -> None:
    sets = list(prefixes(ORDER, data.catalogue))
    assert sets == [["3"], ["0", "3"], ["0", "3", "8"], ["0", "3", "5", "8"]]
    bank = ia.train(data, partition=sets[::-1], objective="xe", **FAST, **UNPRUNED)
    result = trained_jointly(bank, ORDER, data.test, CPU)
    assert result is not None
    assert result["seen"] == [ia.evaluate(m, data.test).accuracy for m in reversed(list(bank))]


def test_fine_tuning_goes_on_with_one_network(data: ia.Data) -> None:
    recipe = ia.Recipe(model=NETWORK, seeds=[1]).resolve()
    result = fine_tuned(recipe, data, ORDER, data.test, CPU, **{**TUNING, "rates": [1e-2]})
    network = untrained(recipe, data)
    for n, name in enumerate(ORDER, start=1):
        seed = stream("fine-tuning", 1, *ORDER[:n])
        fresh = data.train.select([int(name)])
        fine_tune(network, fresh, passes=2, learning_rate=1e-2, batch=32, seed=seed)
        assert result["seen"][n - 1] == ia.evaluate(network, data.test, ORDER[:n]).accuracy
    assert result["rate"] == 1e-2


def test_step_size_is_chosen_on_validation_samples(data: ia.Data) -> None:
    """Test labels may say what they will; validation labels decide."""
    recipe = ia.Recipe(model=NETWORK, seeds=[0]).resolve()
    shifted = ia.Split(data.test.x, (data.test.y + 1) % 10)
    true = fine_tuned(recipe, data, ORDER, data.test, CPU, **TUNING)
    false = fine_tuned(recipe, data, ORDER, shifted, CPU, **TUNING)
    assert true["seen"] != false["seen"]
    each = {
        rate: fine_tuned(recipe, data, ORDER, data.validation, CPU, **{**TUNING, "rates": [rate]})
        for rate in TUNING["rates"]
    }
    means = {rate: np.mean(way["seen"]) for rate, way in each.items()}
    assert len(set(means.values())) == 2
    best = max(means, key=lambda rate: means[rate])
    assert true["rate"] == false["rate"] == best


def test_classes_to_come_are_hidden_from_joint_training(data: ia.Data) -> None:
    hidden = ~torch.isin(data.train.y, torch.tensor([0, 3]))
    x = data.train.x.clone()
    x[hidden] = 1
    spoiled = replace(data, train=ia.Split(x, data.train.y))
    settings = {**FAST, **UNPRUNED, "objective": "xe", "partition": [["0", "3"]]}
    one, other = (ia.train(d, **settings)[0] for d in (data, spoiled))
    assert all(torch.equal(value, other.state[name]) for name, value in one.state.items())


@pytest.mark.parametrize("made", [{}, {"negatives": "mixed(0.5)"}])
def test_classes_to_come_are_hidden_from_modules_in_order(
    data: ia.Data, made: dict[str, str]
) -> None:
    """Samples of later classes, spoiled, change no module; those of its own class do."""
    later = torch.tensor([int(name) for name in ORDER[2:]] + [1, 2, 4, 6, 7, 9])
    spoiled = {}
    for part in ("train", "validation"):
        split = getattr(data, part)
        x = split.x.clone()
        x[torch.isin(split.y, later)] = 1
        spoiled[part] = ia.Split(x, split.y)
    goal = {"name": "me", "order": [int(name) for name in ORDER]}
    settings = {**FAST, "objective": goal, "sparsity": 0.5, "rounds": 1, **made}
    settings |= {"partition": [[name] for name in ORDER[:3]], "select": "loss"}
    one, other = (ia.train(d, **settings) for d in (data, replace(data, **spoiled)))
    same = [
        all(torch.equal(value, theirs.state[name]) for name, value in mine.state.items())
        for mine, theirs in zip(one, other, strict=True)
    ]
    assert same == [True, True, False]


def test_arms_are_cells_of_their_own_and_the_usual_ones_stay(store: Store) -> None:
    context = StudyContext(store, "cpu")
    cells = STUDY.plan(STUDY.options("paper", data="digits", seeds=1, orders=1), context)
    assert [cell.settings["negatives"] for cell in cells] == ["all", "earlier", "earlier + made"]
    alone = STUDY.options("paper", data="digits", seeds=1, orders=1, negatives="all")
    (usual,) = STUDY.plan(alone, context)
    bare = {k: v for k, v in usual.settings.items() if k != "negatives"}
    assert usual.key == cells[0].key == replace(usual, settings=bare).key
    recipes = [cell.banks["modules"].recipe for cell in cells]
    order = [int(name) for name in cells[0].settings["order"]]
    assert recipes[0].objective == "me"
    assert recipes[1].as_dict()["objective"] == {"name": "me", "order": order}
    assert [recipe.batches for recipe in recipes] == [None, "shown", "shown"]
    made = " + ".join(map(str, read_negatives(MADE)))
    assert [recipe.negatives for recipe in recipes] == ["none", "none", made]
    assert [sorted(cell.banks) for cell in cells[1:]] == [["modules"], ["modules"]]
    with pytest.raises(StudyError, match="did you mean 'earlier'"):
        STUDY.plan(STUDY.options("small", negatives="earlyer"), context)


def test_cells_are_orders_and_seeds(store: Store) -> None:
    context = StudyContext(store, "cpu")
    given = {"data": "digits", "seeds": 2, "negatives": "all"}
    cells = STUDY.plan(STUDY.options("paper", **given), context)
    assert len(cells) == 6
    assert len({tuple(cell.settings["order"]) for cell in cells}) == 3
    assert ["joint" in cell.banks for cell in cells] == [True] * 2 + [False] * 4
    assert cells[0].banks["modules"].key == cells[2].banks["modules"].key
    more = STUDY.plan(STUDY.options("paper", **given, orders=5), context)
    assert [cell.key for cell in more[:6]] == [cell.key for cell in cells]


def test_small_form(done: Sequence[Measured]) -> None:
    ways = [cell.result["ways"] for cell in done]
    assert [list(w) for w in ways] == [
        ["logits", "sum", "fine-tuning", "joint training"],
        ["logits", "sum", "fine-tuning"],
        [f"logits{EARLIER}", f"sum{EARLIER}"],
        [f"logits{EARLIER}", f"sum{EARLIER}"],
    ]
    for way in (way for one in ways for way in one.values()):
        assert all(len(way[key]) == 10 for key in ("seen", "among", "earlier", "new"))
        assert len(way["forgetting"]) == 9
        assert way["earlier"][0] is None
        assert all(a >= s for a, s in zip(way["among"], way["seen"], strict=True))
        assert way["among"][-1] == way["seen"][-1]
    # The whole does not depend on the order in which its parts came.
    assert ways[0]["logits"]["seen"][-1] == ways[1]["logits"]["seen"][-1] > 0.8
    assert ways[0]["fine-tuning"]["seen"][-1] < 0.5
    # The first module has nothing but its own class, so that it answers it to everything.
    assert all(way["seen"][:2] == [1.0, pytest.approx(0.5, abs=0.1)] for way in ways[2].values())


def test_a_cell_gives_the_same_twice(done: Sequence[Measured], store: Store) -> None:
    context = StudyContext(store, "cpu")
    cells = STUDY.plan(OPTIONS, context)
    for cell, before in ((cells[0], done[0]), (cells[2], done[2])):
        assert store.write(cell, STUDY.measure(cell, context)).result == before.result


def test_tables_of_any_cells(done: Sequence[Measured]) -> None:
    summary, by_arrival = STUDY.tables(done)
    rows = {row[0]: dict(zip(summary.columns, row, strict=True)) for row in summary.rows}
    usual = ["logits = inlay", "sum", "fine-tuning", "joint training"]
    assert list(rows) == [*usual, f"logits{EARLIER}", f"sum{EARLIER}"]
    own = [cell.result["ways"]["sum"] for cell in done[:2]]
    assert rows["sum"]["at the end"].mean == pytest.approx(np.mean([w["seen"][-1] for w in own]))
    earlier = [np.mean(w["earlier"][1:]) for w in own]
    assert rows["sum"]["earlier"].sd == pytest.approx(np.std(earlier, ddof=1))
    assert rows["sum"]["forgetting"].mean == pytest.approx(np.mean([w["forgetting"] for w in own]))
    assert (rows["sum"]["exact"], rows["fine-tuning"]["exact"]) == ("2 of 2", None)
    assert (rows["sum"]["new"].n, rows["joint training"]["new"].n) == (2, 1)
    assert [row[0] for row in by_arrival.rows] == list(range(1, 11))
    assert by_arrival.rows[4][2].mean == pytest.approx(np.mean([w["seen"][4] for w in own]))
    (only, _) = STUDY.tables(done[1:2])
    assert [row[0] for row in only.rows] == ["logits = inlay", "sum", "fine-tuning"]
    assert [note for note in summary.notes if note.startswith("no later classes")]
    assert not [note for note in only.notes if note.startswith("no later classes")]


def test_the_verdict_says_who_has_seen_later_classes(done: Sequence[Measured]) -> None:
    seen = "The modules joined by logits and sum have seen samples of later classes as negatives"
    both, usual, hidden = (STUDY.judge(some).text for some in (done, done[:2], done[2:]))
    assert both.endswith(f"{seen}.")
    assert usual.endswith(f"{seen}; modules that have not are not measured here.")
    assert "later classes as negatives" not in hidden
    assert f"for logits{EARLIER}" in both


def test_figures_draw_every_way(done: Sequence[Measured]) -> None:
    figures = STUDY.figures(done)
    assert list(figures) == ["continual-digits-mlp-32"]
    for way in ("logits = inlay", "sum", "fine-tuning", "joint training"):
        assert way in svg(figures["continual-digits-mlp-32"])
