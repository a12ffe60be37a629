"""Training as a whole: rounds, checkpoints, modules that diverge, and networks of one's own."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import intarsia as ia
from intarsia.errors import RecipeError, TrainingError, WiringError
from intarsia.objectives import loss, objective
from intarsia.training.progress import Progress
from intarsia.training.run_folder import TIME

SETTINGS = {"model": "mlp(16)", "epochs": 3, "temperature": 1.0, "learning_rate": 1e-2}


@pytest.fixture
def watched(monkeypatch):
    """What the watch saw of every epoch: progress (a copy) and scores."""
    seen = []

    def watch(self, tasks):
        return lambda progress, scores, epochs: seen.append(
            (progress.round, progress.epoch, list(progress.stopped), scores)
        )

    monkeypatch.setattr(Progress, "watch", watch)
    return seen


def tasks_of(data, rates, classes="abcd", seed=0):
    """One task per class, each with its own step size."""
    return [
        ia.Task(c, (c,), (k,), seed, rate, objective("me", data.classes, (k,)))
        for k, (c, rate) in enumerate(zip(classes, rates, strict=True))
    ]


def assert_same(bank, other):
    assert bank.names == other.names
    for mine, theirs in zip(bank, other, strict=True):
        assert all(torch.equal(mine.state[n], theirs.state[n]) for n in theirs.state)


def file_bytes(folder):
    """All but what tells how long it took."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != TIME]
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def test_rounds_prune_to_the_sparsity(small_data):
    settings = {**SETTINGS, "rounds": 2, "pruning": "magnitude"}
    bank = ia.train(small_data, sparsity=0.96, keep_rounds=True, **settings)
    banks = [*bank.rounds, bank]
    assert len(banks) == 3
    assert all(b.names == ("a", "b", "c", "d") for b in banks)
    weights = 64 * 16 + 16 * 4
    for k in range(4):
        kept = [b[k].nonzero - 16 for b in banks]  # biases stay
        first = weights - round(0.8 * weights)
        assert kept == [weights, first, first - round(0.8 * first)]
        masks = [b[k].mask["layers.0.weight"] for b in banks[1:]]
        assert bool((masks[1] <= masks[0]).all())


def test_survivors_are_reset_to_the_origin_and_are_the_largest_of_the_round_before(small_data):
    all_layers = {**SETTINGS, "pruning": "magnitude"}
    settings = {**all_layers, "rounds": 2, "silent": False, "learning_rate": 0.0}
    bank = ia.train(small_data, sparsity=0.9, keep_rounds=True, **settings)
    origin = ia.initialise("mlp(16)", (1, 8, 8), 4, 0).state_dict()
    for module in bank:
        for name, value in module.state.items():
            expected = origin[name] * module.mask.get(name, torch.ones(()))
            assert torch.equal(value, expected)
    trained = ia.train(small_data, sparsity=0.9, rounds=1, keep_rounds=True, **all_layers)
    for before, after in zip(trained.rounds[0], trained, strict=True):
        names = ["layers.0.weight", "layers.1.weight"]
        size = torch.cat([before.state[n].abs().flatten() for n in names])
        kept = torch.cat([after.mask[n].flatten() for n in names])
        assert float(size[kept].min()) >= float(size[~kept].max())


@pytest.mark.parametrize("engine", ["auto", "single", "stack", "plain"])
def test_every_round_begins_at_the_origin_whatever_was_learned_before(small_data, engine):
    """A round of one step is one step of torch's Adam from the masked origin, and no other."""
    settings = {"batch": 1000, "epochs": 1, "pruning_epochs": 1, "learning_rate": 0.02}
    settings |= {"preset": "paper", "model": "mlp(16, dropout=0)", "temperature": 1.0}
    pruning = {"sparsity": 0.9, "rounds": 2, "keep_rounds": True}
    bank = ia.train(small_data, engine=engine, **settings, **pruning)
    origin = ia.initialise("mlp(16, dropout=0)", (1, 8, 8), 4, 0).state_dict()
    for round_ in (*bank.rounds, bank):
        for place, module in enumerate(round_):
            begin = {n: t * module.mask.get(n, torch.ones(())) for n, t in origin.items()}
            expected = stepped(small_data, begin, module.mask, place, learning_rate=0.02)
            for name, value in module.state.items():
                torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-5)
                kept = module.mask.get(name, torch.ones_like(value, dtype=torch.bool))
                # Nearly all survivors have moved, so that another beginning would show.
                assert ((value - origin[name]).abs()[kept] > 0.01).double().mean() > 0.5


def stepped(data, begin, mask, place, learning_rate):
    """What one step of Adam on all samples makes of a state, pruned entries left at 0."""
    network = ia.initialise("mlp(16, dropout=0)", (1, 8, 8), 4, 0)
    network.load_state_dict(begin)
    optimiser = torch.optim.Adam(network.parameters(), lr=learning_rate)
    loss(network(data.train.x), data.train.y, objective("me", 4, (place,))).backward()
    optimiser.step()
    return {n: t * mask.get(n, torch.ones(())) for n, t in network.state_dict().items()}


@pytest.mark.parametrize("model", ["mlp(16)", "lenet"])
def test_round_one_is_the_unpruned_run(small_data, model):
    settings = {**SETTINGS, "model": model, "epochs": 2}
    pruned = ia.train(small_data, sparsity=0.9, keep_rounds=True, **settings)
    dense = ia.train(small_data, sparsity=0, **settings)
    assert dense.rounds == ()
    assert_same(pruned.rounds[0], dense)
    assert dense[0].density == 1


def test_saved_density_is_reported_density(small_data, tmp_path):
    settings = {**SETTINGS, "sparsity": 0.9, "rounds": 2, "keep_rounds": True}
    bank = ia.train(small_data, out=tmp_path / "out", **settings)
    loaded = ia.Bank.load(tmp_path / "out")
    for module, saved in zip(bank, loaded, strict=True):
        assert saved.density == module.density
        parameters = sum(t.numel() for t in saved.state.values())
        nonzero = sum(int(torch.count_nonzero(t)) for t in saved.state.values())
        assert nonzero / parameters == saved.density  # no survivor is 0 by chance here
        assert saved.density == pytest.approx(0.1, abs=0.02)
    assert [r.name for r in sorted((tmp_path / "out").glob("round-*"))] == ["round-1", "round-2"]
    assert_same(ia.Bank.load(tmp_path / "out" / "round-1"), bank.rounds[0])


@pytest.mark.parametrize("select", ["accuracy", "loss", "last"])
def test_the_module_is_the_checkpoint_that_was_selected(small_data, watched, select):
    settings = {**SETTINGS, "epochs": 6, "learning_rate": 0.1, "sparsity": 0}
    settings["preset"] = "paper"  # with steps of one size, a shorter run is the same so far
    bank = ia.train(small_data, select=select, **settings)
    seen = [scores for _, _, _, scores in watched]
    for k, module in enumerate(bank):
        score = module.provenance["scores"]["validation"]
        key = {
            "accuracy": lambda e, k=k: (
                float(seen[e].accuracy[k]),
                -float(seen[e].loss[k]),
            ),
            "loss": lambda e, k=k: -float(seen[e].loss[k]),
            "last": lambda e: e,
        }[select]
        best = max(range(6), key=key)
        assert score["epoch"] == best
        assert score["loss"] == float(seen[best].loss[k])
        until = ia.train(small_data, select="last", **{**settings, "epochs": best + 1})
        assert all(torch.equal(until[k].state[n], t) for n, t in module.state.items())
    chosen = [m.provenance["scores"]["validation"]["epoch"] for m in bank]
    assert select == "last" or any(e < 5 for e in chosen)


def test_patience_stops_a_module_and_leaves_the_others(small_data, watched):
    rates = [0.3, 1e-3, 0.3, 1e-3]
    settings = {**SETTINGS, "model": "mlp(16, dropout=0)", "sparsity": 0, "epochs": 8}
    given = {"tasks": lambda data: tasks_of(data, rates), "select": "last"}
    bank = ia.train(small_data, patience=1, **given, **settings)
    stopped = watched[-1][2]
    assert any(stopped)
    assert not all(stopped)
    merged = ia.train(small_data, **given, **settings)
    for k, module in enumerate(bank):
        same = all(torch.equal(merged[k].state[n], t) for n, t in module.state.items())
        assert same != stopped[k]


def test_a_cosine_schedule_trains_differently(small_data):
    constant = ia.train(small_data, sparsity=0, schedule="constant", **SETTINGS)
    cosine = ia.train(small_data, sparsity=0, schedule="cosine", **SETTINGS)
    assert not torch.equal(constant[0].state["layers.0.weight"], cosine[0].state["layers.0.weight"])


@pytest.mark.parametrize("engine", ["auto", "single", "stack", "plain"])
def test_a_module_that_diverges_is_named_and_kept_out(small_data, engine):
    """Its step size is absurd; its neighbours are what they are without it, to the bit."""
    rates = [1e-2, 1e30, 1e-2, 1e-2]

    def without(data):
        return [t for t in tasks_of(data, rates) if t.name != "b"]

    # a stack draws dropout for all its modules at once
    model = "mlp(16, dropout=0)" if engine == "stack" else "mlp(16)"
    settings = {**SETTINGS, "model": model, "sparsity": 0.9, "engine": engine}
    bank = ia.train(small_data, tasks=lambda data: tasks_of(data, rates), **settings)
    assert bank.diverged == ("b",)
    assert bank.names == ("a", "c", "d")
    clean = ia.train(small_data, tasks=without, **settings)
    assert clean.diverged == ()
    if engine != "stack":
        assert_same(bank, clean)
    for mine, theirs in zip(bank, clean, strict=True):  # another stack may round differently
        for name, value in theirs.state.items():
            torch.testing.assert_close(mine.state[name], value, rtol=1e-4, atol=1e-5)


def test_a_bank_that_diverges_as_a_whole_is_an_error(small_data, tmp_path):
    settings = {**SETTINGS, "sparsity": 0.9, "out": tmp_path / "out"}
    with pytest.raises(TrainingError, match="every module diverged"):
        ia.train(small_data, tasks=lambda d: tasks_of(d, [1e30] * 4), **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"sparsity": 0.9},
        {"preset": "released", "sparsity": 0.9},
        {"pruning": "territory(by='magnitude')"},
        {"pruning": "random", "sparsity": 0.5, "engine": "stack"},
    ],
)
def test_the_same_recipe_gives_the_same_bytes(small_data, tmp_path, settings):
    for out in ("one", "two"):
        torch.manual_seed(len(out))  # the global generator plays no part
        torch.rand(7)
        ia.train(small_data, out=tmp_path / out, keep_rounds=True, **{**SETTINGS, **settings})
    one, two = file_bytes(tmp_path / "one"), file_bytes(tmp_path / "two")
    assert one == two
    assert {"bank.json", "recipe.yaml", "a.safetensors", "d.safetensors"} <= set(one)
    assert not [name for name in one if name.endswith(".part") or ".progress" in name]


def test_the_global_generator_is_left_alone(small_data):
    torch.manual_seed(5)
    expected = torch.rand(3)
    for engine in ("plain", "stack"):
        torch.manual_seed(5)
        ia.train(small_data, sparsity=0, engine=engine, **{**SETTINGS, "epochs": 1})
        assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("settings", [{"sparsity": 0.9}, {"preset": "released", "sparsity": 0.9}])
def test_chunks_give_the_same_modules(small_data, monkeypatch, settings):
    settings = {**SETTINGS, **settings, "seeds": [0, 1]}
    merged = ia.train(small_data, **settings)
    monkeypatch.setattr("intarsia.training.engines.select.CPU_CHUNK", (3, 3))
    parts = ia.train(small_data, **settings)
    assert merged.names == parts.names
    assert merged.names[:2] == ("a-s0", "b-s0")
    assert [m.digest for m in merged] == [m.digest for m in parts]


def test_modules_of_one_seed_share_an_origin(small_data):
    bank = ia.train(small_data, sparsity=0, seeds=[3, 4], **SETTINGS)
    assert len({m.origin for m in bank.seed(3)}) == 1
    assert {m.origin for m in bank.seed(3)} != {m.origin for m in bank.seed(4)}
    alone = ia.train(small_data, sparsity=0, seeds=[4], **SETTINGS)
    assert alone.names == ("a", "b", "c", "d")
    for mine, theirs in zip(alone, bank.seed(4), strict=True):
        assert all(torch.equal(mine.state[n], t) for n, t in theirs.state.items())


def test_modules_learn_their_class(small_data):
    bank = ia.train(small_data, sparsity=0.9, **{**SETTINGS, "epochs": 12})
    for module in bank:
        result = ia.evaluate(module, small_data.test)
        assert result.accuracy > 0.9
        assert result.entropy > 1.2  # of log 4 = 1.39


def own(shape, outputs):
    """A network of a user's own."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, outputs)
    )


def test_a_network_of_ones_own_from_end_to_end(small_data, tmp_path):
    settings = {"epochs": 3, "sparsity": 0.5, "learning_rate": 1e-2, "model": own}
    bank = ia.train(small_data, out=tmp_path / "out", **settings)
    assert bank[0].mask.keys() == {"1.weight", "4.weight"}
    loaded = ia.Bank.load(tmp_path / "out", own)
    x = small_data.test.x
    with torch.no_grad():
        assert torch.equal(loaded["c"].to_module()(x), bank["c"].to_module()(x))
    again = ia.train(small_data, out=tmp_path / "out", **settings)
    assert_same(again, bank)


class Unreadable(nn.Module):
    """Its units are mixed in a way that tracing cannot name."""

    def __init__(self, outputs):
        super().__init__()
        self.first, self.last = nn.Linear(64, 8), nn.Linear(8, outputs)

    def forward(self, x):
        return self.last(torch.fft.fft(self.first(x.flatten(1))).real)


@pytest.mark.parametrize("engine", ["single", "stack", "plain"])
def test_a_network_that_cannot_be_read_is_pruned_weight_by_weight(small_data, engine):
    def factory(shape, outputs):
        return Unreadable(outputs)

    for pruning in ("magnitude", "magnitude(scope='layer')", "random"):
        settings = {"sparsity": 0.5, "pruning": pruning, "engine": engine, "epochs": 1}
        bank = ia.train(small_data, model=factory, **settings)
        kept = [int(mask.sum()) for mask in bank[0].mask.values()]
        assert bank[0].mask.keys() == {"first.weight", "last.weight"}
        assert sum(kept) == pytest.approx((64 * 8 + 8 * 4) / 2, abs=1)


def test_what_gives_out_units_needs_them(small_data):
    def factory(shape, outputs):
        return Unreadable(outputs)

    with pytest.raises(WiringError, match=r"territory gives out units.*wiring.*'fft_fft'"):
        ia.train(small_data, model=factory, epochs=1, pruning="territory")
    layers = "magnitude(scope='layer', ratios={'output': 0.5})"
    with pytest.raises(RecipeError, match="'output' layer, which is known by the wiring"):
        ia.train(small_data, model=factory, epochs=1, sparsity=0.5, pruning=layers)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "b"}, "two modules have the name 'b'"),
        ({"rewarded": ("z",)}, "rewards 'z' as number 0"),
        ({"indices": (1,)}, "rewards 'a' as number 1"),
        ({"indices": (7,)}, "rewards 'a' as number 7"),
        ({"rewarded": (), "indices": ()}, "needs one index for each"),
        ({"objective": objective("me", 5, (0,))}, "equally many outputs"),
    ],
)
def test_tasks_of_ones_own_are_checked(small_data, change, message):
    def given(data):
        first, *rest = tasks_of(data, [1e-3] * 4)
        return [replace(first, **change), *rest]

    with pytest.raises(RecipeError, match=message):
        ia.train(small_data, tasks=given, **SETTINGS)
    with pytest.raises(RecipeError, match="nothing to train"):
        ia.train(small_data, tasks=lambda data: [], **SETTINGS)


def test_a_set_smaller_than_a_batch_is_one_batch(small_data):
    bank = ia.train(small_data, sparsity=0, batch=1000, **SETTINGS)
    assert len(bank) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine": "stakc"}, "unknown engine 'stakc': did you mean 'stack'"),
        ({"engine": "mlp", "model": "lenet"}, "engine 'mlp' trains mlp networks only"),
        ({"objective": "mee"}, "did you mean 'me'"),
        ({"pruning": "magnitud"}, "did you mean 'magnitude'"),
        ({"epohcs": 3}, "did you mean 'epochs'"),
        ({"data_options": {"scal": "unit"}}, "data has no option 'scal': did you mean 'scale'"),
    ],
)
def test_says_what_is_wrong(small_data, settings, message):
    with pytest.raises(RecipeError, match=message):
        ia.train(small_data, **{**SETTINGS, **settings})
