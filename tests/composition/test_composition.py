"""Joining modules: exact in any order, explained where it cannot be."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from intarsia.composition import OPERATORS, Composition, MergeContext, compose, operator
from intarsia.data import Scaling, Split
from intarsia.errors import CompositionError, FileError, RecipeError
from intarsia.files import canonical, digest_of
from intarsia.measure import evaluate
from intarsia.models import initialise
from intarsia.modules import Architecture, Bank, Module
from small_modules import same, small_module

CATALOGUE = ("0", "1", "2", "3", "4")
X = torch.randint(0, 256, (20, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
NAMES = st.lists(st.sampled_from(CATALOGUE), unique=True, min_size=1)


@cache
def part(name: str, model: str = "mlp(10)", shape: tuple[int, ...] = (6,), seed: int = 0) -> Module:
    """A module with weights of its own class's generator and two thirds of them pruned."""
    network = initialise(model, shape, 5, seed=int(name))
    generator = torch.Generator().manual_seed(int(name))
    state, mask = dict(network.state_dict()), {}
    for key, _ in network.named_parameters():
        mask[key] = torch.rand(state[key].shape, generator=generator) < 0.33
        state[key] = state[key] * mask[key]
    return small_module(name, state, mask, CATALOGUE, model, shape, provenance={"seed": seed})


@pytest.mark.parametrize("how", ["sum", "logits"])
@settings(max_examples=15, deadline=None)
@given(names=NAMES, data=st.data())
def test_add_and_remove_in_any_order_is_exact(how: str, names: list[str], data: Any) -> None:
    expected = compose([part(n) for n in names], how)
    shuffled = compose([part(n) for n in data.draw(st.permutations(names))], how)
    assert same(shuffled, expected, X)
    others = [n for n in CATALOGUE if n not in names]
    for name in others:
        shuffled.add(part(name))
    for name in data.draw(st.permutations(others)):
        shuffled.remove(data.draw(st.sampled_from([name, part(name)])))
    assert same(shuffled, expected, X)


@pytest.mark.parametrize("how", ["sum", "logits"])
@pytest.mark.parametrize("name", CATALOGUE)
def test_one_module_is_itself(how: str, name: str) -> None:
    module = part(name)
    one = compose([module], how)
    with torch.no_grad():
        assert torch.equal(one(X), module.to_module()(X))
    assert (one.density, one.nonzero) == (module.density, module.nonzero)
    assert (one.catalogue, one.rewarded) == (module.catalogue, module.rewarded)


def test_sum_is_the_sum_of_states() -> None:
    modules = [part(n) for n in "302"]
    joined = compose(modules, "sum")
    for name, tensor in joined.networks[0].network.state_dict().items():
        expected = torch.stack([m.state[name].double() for m in modules]).sum(0)
        assert torch.allclose(tensor.double(), expected, atol=1e-6)
    union = {k: torch.stack([m.mask[k] for m in modules]).any(0) for k in modules[0].mask}
    assert joined.nonzero == sum(int(mask.sum()) for mask in union.values())
    assert joined.rewarded == ("0", "2", "3")


def test_dense_part_makes_the_sum_dense() -> None:
    dense = replace(part("1"), mask={})
    assert compose([part("0"), dense], "sum").density == 1.0


def test_logits_are_the_sum_of_logits() -> None:
    modules = [part(n) for n in "302"]
    joined = compose(modules, "logits")
    with torch.no_grad():
        expected = sum(m.to_module()(X).double() for m in modules)
        assert torch.allclose(joined(X).double(), expected, atol=1e-6)
    assert torch.allclose(joined.predict_proba(X), torch.softmax(joined(X) / 5, 1))
    assert torch.equal(joined.predict(X.numpy()), joined(X).argmax(1))
    assert joined.nonzero == sum(m.nonzero for m in modules)
    assert joined.density == pytest.approx(sum(m.density for m in modules) / 3)


def _norm(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(*shape, 7), nn.LayerNorm(7), nn.Linear(7, outputs))


def _dense(name: str, model: Any, outputs: int = 5) -> Module:
    state = initialise(model, (6,), outputs, int(name)).state_dict()
    factory = None if isinstance(model, str) else model
    architecture = Architecture.of(model, (6,), outputs)
    return replace(part(name), state=state, mask={}, architecture=architecture, factory=factory)


def _pruned(module: Module, fraction: float) -> Module:
    """Of the units of the first layer only so many reach the second."""
    weight = module.state["layers.1.weight"]
    mask = torch.ones_like(weight, dtype=torch.bool)
    mask[:, round(fraction * weight.shape[1]) :] = False
    state = module.state | {"layers.1.weight": weight * mask}
    return replace(module, state=state, mask={"layers.1.weight": mask})


def _unscaled(module: Module) -> Module:
    return replace(module, scaling=Scaling("none", torch.tensor(0.0), torch.tensor(1.0)))


DEEP = "mlp(450, 450)"  # five side by side: 5 * 5 * 450 * 450 numbers, 5 times those of the parts


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        ([part(n) for n in CATALOGUE], "inlay"),
        ([part("0")], "inlay"),
        ([part("0"), replace(part("1"), origin="f" * 64)], "inlay"),
        ([_dense(n, DEEP) for n in "0123"], "inlay"),
        ([_dense(n, DEEP) for n in CATALOGUE], "logits"),
        ([_pruned(_dense(n, DEEP), 0.5) for n in CATALOGUE], "inlay"),
        ([_dense(n, _norm) for n in "01"], "logits"),
        ([_dense(n, "mlp(10)", 6) for n in "01"], "logits"),  # an explicit other
        ([part("0"), part("1", "mlp(9)")], "logits"),
        ([part("0"), _unscaled(part("1"))], "logits"),
    ],
    ids=["small", "one", "origins", "room", "large", "pruned", "norm", "other", "width", "scaling"],
)
def test_logits_are_added_by_default(modules: list[Module], expected: str, tmp_path: Path) -> None:
    """In one network where the parts can lie side by side in a small one, else apart."""
    joined = compose(modules)
    assert joined.operator.name == expected
    with torch.no_grad():
        torch.testing.assert_close(joined(X), compose(modules, "logits")(X))
    for how in ("auto", {"name": "auto"}):
        assert same(compose(Bank(modules), how), joined, X)
    joined.save(tmp_path / "whole")
    loaded = Composition.load(tmp_path / "whole", modules[0].factory)
    assert loaded.operator.name == expected
    assert same(loaded, joined, X)


def test_tensors_of_inference_mode_are_joined() -> None:
    with torch.inference_mode():
        made = [replace(p, state={k: v.clone() for k, v in p.state.items()}) for p in _told({})]
        assert same(compose(made, "sum"), compose(_told({}), "sum"), X)


def _told(recipe: Any, names: str = "0123") -> list[Module]:
    """Modules whose provenance has this recipe."""
    return [replace(part(n), provenance={**part(n).provenance, "recipe": recipe}) for n in names]


CHAIN = {"visibility": "past(amount=None)", "balance": 0.0}


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        (_told(CHAIN), "stick_breaking"),
        (
            _told({**CHAIN, "visibility": "past(order=[3, 2], amount=None)"}),
            "stick_breaking([3, 2])",
        ),
        (_told(CHAIN, "0"), "inlay"),
        (_told({**CHAIN, "balance": 0.5}), "inlay"),
        (_told({**CHAIN, "visibility": "past"}), "inlay"),
        (_told({**CHAIN, "visibility": "own"}), "inlay"),
        (_told({**CHAIN, "visibility": ["?"]}), "inlay"),
        (_told("?"), "inlay"),
        ([*_told(CHAIN, "01"), part("2")], "inlay"),
        (_told(CHAIN, "0") + _told({**CHAIN, "visibility": "past([1], None)"}, "1"), "inlay"),
    ],
)
def test_modules_that_saw_all_earlier_classes_are_a_chain_by_default(
    modules: list[Module], expected: str
) -> None:
    joined = compose(modules)
    assert joined.operator == OPERATORS.spec(expected)
    assert same(joined, compose(modules, expected), X)


def test_weights_are_added_by_default_where_they_are_aligned() -> None:
    modules = [part("0"), replace(part("1"), origin="f" * 64)]
    assert same(compose(modules, align="weights"), compose(modules, "sum", align="weights"), X)


def test_what_no_operator_joins_is_refused_by_default() -> None:
    with pytest.raises(CompositionError, match=r"its temperature is 1\.0, not 5\.0"):
        compose([part("0"), replace(part("1"), temperature=1.0)])
    with pytest.raises(CompositionError, match="needs labelled samples"):
        compose([part("0"), part("1")], samples=X, calibrate=True)
    with pytest.raises(RecipeError, match="unknown operator 'auto'"):
        compose([part("0")], "auto(density=0.2)")


@settings(max_examples=25, deadline=None)
@given(
    owner=st.lists(st.integers(0, 2), min_size=10, max_size=10),
    weights=st.lists(st.integers(-4, 4), min_size=120, max_size=120),
)
def test_disjoint_territories_sum_to_the_logits(owner: list[int], weights: list[int]) -> None:
    """Whole numbers make every sum exact, so that equality is equality."""
    modules = [_territory(i, torch.tensor(owner) == i, weights) for i in range(3)]
    with torch.no_grad():
        assert torch.equal(compose(modules, "sum")(X), compose(modules, "logits")(X))


def _territory(number: int, owned: Tensor, weights: list[int]) -> Module:
    values = torch.tensor(weights, dtype=torch.float32).roll(number)
    state = {
        "layers.0.weight": values[:60].reshape(10, 6),
        "layers.0.bias": values[60:70],
        "layers.1.weight": values[70:].reshape(5, 10),
    }
    mask = {
        "layers.0.weight": owned[:, None].expand(10, 6),
        "layers.0.bias": owned,
        "layers.1.weight": owned[None].expand(5, 10),
    }
    scaling = Scaling("none", torch.tensor(0.0), torch.tensor(1.0))
    state = {k: v * mask[k] for k, v in state.items()}
    return replace(part(str(number)), state=state, mask=mask, scaling=scaling)


def test_plus_and_minus_make_new_ones() -> None:
    both = compose([part("0"), part("1")])
    more = both + part("2")
    assert [p.name for p in both.parts] == ["0", "1"]
    assert same(more - "2", both, X)
    assert same(more - part("0"), compose([part("1"), part("2")]), X)


def test_failed_change_changes_nothing() -> None:
    both = compose([part("0"), part("1")])
    before = compose(both.parts)
    with pytest.raises(CompositionError, match="given twice"):
        both.add(part("2"), part("1"))
    with pytest.raises(CompositionError, match="would leave none"):
        both.remove("0", "1")
    assert same(both, before, X)


def test_mode_device_and_dtype_stay() -> None:
    both = compose([part("0"), part("1")])
    assert not both.training
    assert both.train().add(part("2")).networks[0].network.training
    for how in ("sum", "logits"):
        wide = compose([part("0"), part("1")], how).double()
        for changed in (wide + part("2"), wide - "1", wide.add(part("2"))):
            assert changed(X).dtype == torch.float64
            assert {p.dtype for p in changed.parameters()} == {torch.float64}


def test_bank_and_evaluation() -> None:
    joined = compose(Bank([part(n) for n in CATALOGUE]), "logits")
    assert joined.rewarded == CATALOGUE
    seen = evaluate(joined, Split(X, torch.arange(20) % 5))
    assert seen.accuracy == float((joined.predict(X) == torch.arange(20) % 5).double().mean())


@pytest.mark.parametrize("how", ["sum", "logits"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"catalogue": ("a", "1", "2", "3", "4")},
            r"module '1' does not fit module '0': its catalogue is \['a'.*not \['0'.*grown\(module",
        ),
        ({"temperature": 1.0}, "its temperature is 1.0, not 5.0: train both"),
    ],
)
def test_modules_that_do_not_fit(how: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(CompositionError, match=message):
        compose([part("0"), replace(part("1"), **change)], how)


@pytest.mark.parametrize("how", ["sum", "inlay"])
@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        (Scaling("unit", torch.tensor(0.0), torch.tensor(0.5)), "its scaling is .*0.5}, not"),
        (Scaling("none", torch.tensor(0.0), torch.tensor(1.0)), "'none'.*logits"),
    ],
)
def test_one_network_reads_inputs_one_way(how: str, scaling: Scaling, message: str) -> None:
    other = replace(part("1"), scaling=scaling)
    with pytest.raises(CompositionError, match=message):
        compose([part("0"), other], how)
    assert compose([part("0"), other], "logits").rewarded == ("0", "1")


@pytest.mark.parametrize("how", ["sum", "inlay"])
def test_another_model(how: str) -> None:
    other = part("1", "mlp(9)")
    with pytest.raises(CompositionError, match=r"model is mlp\(hidden=\[9\].* not mlp.*logits"):
        compose([part("0"), other], how)
    with torch.no_grad():
        expected = part("0").to_module()(X) + other.to_module()(X)
        assert torch.equal(compose([part("0"), other], "logits")(X), expected)


def test_inputs_of_another_shape_do_not_fit() -> None:
    with pytest.raises(CompositionError, match=r"input shape is \(3, 8, 8\), not \(6,\)"):
        compose([part("0"), part("1", "resnet18(width=2)", (3, 8, 8))], "logits")


def test_another_factory() -> None:
    def factory(width: int) -> Callable[..., nn.Module]:
        return lambda shape, outputs: nn.Sequential(nn.Linear(6, width), nn.Linear(width, outputs))

    modules = []
    for name, width in (("0", 7), ("1", 8)):
        network = initialise(factory(width), (6,), 5, 0)
        modules.append(
            replace(
                part(name),
                state=network.state_dict(),
                mask={},
                architecture=Architecture(None, (6,), 5),
                factory=factory(width),
            )
        )
    with pytest.raises(CompositionError, match=r"list of tensors is .*\[8, 6\]"):
        compose(modules, "sum")


def _act(curve: nn.Module) -> Callable[..., nn.Module]:
    return lambda shape, outputs: nn.Sequential(nn.Linear(*shape, 7), curve, nn.Linear(7, outputs))


@pytest.mark.parametrize("how", ["sum", "inlay"])
def test_factories_of_one_list_of_tensors_must_make_one_function(how: str) -> None:
    def made(name: str, factory: Callable[..., nn.Module]) -> Module:
        state = initialise(factory, (6,), 5, int(name)).state_dict()
        architecture = Architecture(None, (6,), 5)
        return replace(part(name), state=state, mask={}, architecture=architecture, factory=factory)

    first = made("0", _act(nn.ReLU()))
    with pytest.raises(CompositionError, match=r"answers otherwise.*one factory.*logits"):
        compose([first, made("1", _act(nn.Tanh()))], how)
    assert compose([first, made("1", _act(nn.ReLU()))], how).nonzero
    assert compose([first, made("1", _act(nn.Tanh()))], "logits").nonzero
    wider = made("1", lambda s, o: nn.Sequential(nn.Linear(*s, 8), nn.ReLU(), nn.Linear(8, o)))
    named = made("1", lambda s, o: nn.Sequential(nn.Linear(*s, 7), nn.Linear(7, o)))
    for other in (wider, named):
        with pytest.raises(CompositionError, match="does not fit module '0'"):
            compose([first, other], how)


@pytest.mark.parametrize("given", [None, 3, "path"])
def test_what_is_no_module_is_named(given: Any) -> None:
    with pytest.raises(CompositionError, match=f"a {type(given).__name__} cannot be joined"):
        compose(given)
    with pytest.raises(CompositionError, match=r"a Composition cannot be joined.*parts"):
        compose(compose([part("0")]))  # type: ignore[arg-type]
    for second in (part("1"), Bank([part("1")]), compose([part("1")])):
        with pytest.raises(CompositionError, match=r"in one list, as in compose\(\[a, b\]\)"):
            compose(part("0"), second)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "how",
    ["weighted(weights={'0': 0.5, '1': -2})", "logit_weighted(normalise=True, weights={'1': 3})"],
)
def test_weights_by_name_are_kept_in_files(how: str, tmp_path: Path) -> None:
    merged = compose([part("0"), part("1"), part("2")], how)
    merged.save(tmp_path / "whole")
    loaded = Composition.load(tmp_path / "whole")
    assert loaded.operator == merged.operator
    assert same(loaded, merged, X)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("weighted(normalise='no')", "normalise is 'no': expected true or false"),
        ("logit_weighted(normalise=1)", "normalise is 1: expected true or false"),
        ("dare(rescale='no', base='zero')", "rescale is 'no': expected true or false"),
        ("weighted(weights=1e999)", "weights is inf: expected one number"),
        ("logit_weighted(weights={'0': -1e999})", "weight of '0' is -inf: expected a number"),
        ("logit_weighted(weights='a')", "weights is 'a': expected one number"),
        ("weighted(weights={'0': 0.1, '1': 0.2, '2': -0.3}, normalise=True)", "add up to 0"),
        ("weighted(weights=1e300)", "values of 'layers.0.weight' that are not finite"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_when_joining(how: str, message: str) -> None:
    with pytest.raises((CompositionError, RecipeError), match=message):
        compose([part("0"), part("1"), part("2")], how)


def test_another_origin_only_matters_for_weights() -> None:
    foreign = replace(part("1"), origin="f" * 64)
    with pytest.raises(CompositionError, match=r"origin is ffff.*align.*inlay.*logits"):
        compose([part("0"), foreign], "sum")
    assert compose([part("0"), foreign], "logits").rewarded == ("0", "1")


def test_duplicates_and_others() -> None:
    with pytest.raises(CompositionError, match="'0' is given twice: leave one out"):
        compose([part("0"), part("0")])
    other = replace(part("1"), name="0")
    with pytest.raises(CompositionError, match="twice, with other weights"):
        compose([part("0"), other])
    with pytest.raises(CompositionError, match="needs at least one module"):
        compose([])
    with pytest.raises(CompositionError, match="a str cannot be joined"):
        compose(["0"])  # type: ignore[list-item]
    with pytest.raises(RecipeError, match="unknown operator 'summ': did you mean 'sum'"):
        compose([part("0")], "summ")


def test_removing_what_is_not_there() -> None:
    pair = replace(part("1"), name="1+2", rewarded=("1", "2"))
    joined = compose([part("0"), pair])
    with pytest.raises(CompositionError, match="cannot remove 3: give a module or its name"):
        joined.remove(3)  # type: ignore[arg-type]
    with pytest.raises(CompositionError, match="cannot remove '3': there is no module '3'"):
        joined.remove("3")
    with pytest.raises(CompositionError, match=r"class '2' cannot be taken out alone.*'1\+2'"):
        joined.remove("2")
    with pytest.raises(CompositionError, match="'0' has other weights"):
        joined.remove(replace(part("3"), name="0"))
    with pytest.raises(CompositionError, match=r"'3': it is not a part; parts: 0, 1\+2"):
        joined.remove(part("3"))
    assert joined.remove("1+2").rewarded == ("0",)


def test_running_statistics_are_averaged_and_noted() -> None:
    shape, model = (3, 8, 8), "resnet18(width=2)"
    modules = []
    for name, mean in (("0", 1.0), ("1", 4.0)):
        module = part(name, model, shape)
        state = {
            k: torch.full_like(v, mean) if "running" in k else torch.full_like(v, int(mean))
            if "num_batches" in k else torch.full_like(v, 0.5)  # a gain of 0 keeps no unit
            for k, v in module.state.items()
        }  # fmt: skip
        modules.append(replace(module, state=state, mask={}))
    joined = compose(modules, "sum")
    for name, buffer in joined.networks[0].network.named_buffers():
        assert (buffer == (4 if "num_batches" in name else 2.5)).all(), name
    assert "give samples to recompute them" in joined.report["notes"][0]
    assert compose(modules, "logits").report["notes"] == []
    assert compose([part("0"), part("1")], "sum").report["notes"] == []


@pytest.mark.parametrize("how", ["sum", "logits"])
def test_file_round_trip(how: str, tmp_path: Path) -> None:
    joined = compose([part(n) for n in "302"], how)
    joined.save(tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    loaded = Composition.load(tmp_path / "whole")
    assert same(loaded, joined, X)
    assert [p.digest for p in loaded.parts] == [p.digest for p in joined.parts]
    loaded.remove("3").add(part("3")).save(tmp_path / "whole")
    assert (tmp_path / "whole").read_bytes() == content
    with pytest.raises(FileError, match=r"read it with Composition\.load"):
        Module.load(tmp_path / "whole")
    part("0").save(tmp_path / "part")
    with pytest.raises(FileError, match=r"read it with Module\.load"):
        Composition.load(tmp_path / "part")


Change = Callable[[dict[str, Any], dict[str, Tensor]], Any]


def _samples(x: Tensor) -> dict[str, Tensor]:
    return {"samples/x": x, "samples/y": torch.zeros(len(X), dtype=torch.int64)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h, t: h.update(operator=None), "names no operator"),
        (lambda h, t: h.update(operator="sum"), "expected a mapping"),
        (lambda h, t: h["operator"].update(name="summ"), "did you mean 'sum'"),
        (lambda h, t: h.update(parts=[]), "of no part"),
        (lambda h, t: h.update(parts={}), "not a list of modules"),
        (lambda h, t: h["parts"].append(h["parts"][0]), "lacks the tensor"),
        (lambda h, t: h["parts"][1].update(name="0"), "two parts of one name"),
        (lambda h, t: h["parts"][1].update(temperature=2.0), "its temperature is 2.0"),
        (lambda h, t: h["parts"][1].pop("origin"), "lacks origin"),
        (lambda h, t: t.update({"x": torch.ones(1)}), "'x' of no part"),
        (lambda h, t: t.update(_samples(torch.ones(()))), "its samples are not 1 to 1000"),
        (lambda h, t: (h.update(parts=[]), t.clear(), t.update(_samples(X))), "would leave none"),
        (lambda h, t: h["operator"].update(arguments={"affine": {"a": {}}}), "expected a setting"),
        (lambda h, t: t.update({"01/x": torch.ones(1)}), "'01/x' of no part"),
    ],
)
def test_faulty_files_are_explained(change: Change, message: str, tmp_path: Path) -> None:
    joined = compose([part("0"), part("1")])
    joined.save(tmp_path / "whole")
    with safetensors.safe_open(tmp_path / "whole", "pt") as file:
        header = json.loads(file.metadata()["intarsia"])
    tensors = safetensors.torch.load_file(tmp_path / "whole")
    header.pop("digest")
    change(header, tensors)
    header["digest"] = digest_of(header, tensors)
    content = safetensors.torch.save(tensors, {"intarsia": canonical(header)})
    (tmp_path / "whole").write_bytes(content)
    with pytest.raises(FileError, match=message):
        Composition.load(tmp_path / "whole")


def test_operator_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    @operator("scaled", on="logits", paper="none")
    def scaled(logits: list[Tensor], context: MergeContext, by: float = 2.0) -> Tensor:
        return by * sum(logits)

    monkeypatch.setitem(OPERATORS, "scaled", OPERATORS.pop("scaled"))
    with torch.no_grad():
        expected = 3 * part("0").to_module()(X)
        assert torch.equal(compose([part("0")], "scaled(by=3.0)")(X), expected)
    with pytest.raises(RecipeError, match="no setting 'bye': did you mean 'by'"):
        compose([part("0")], "scaled(bye=3)")


def test_operator_without_a_ground_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"'bare' takes \(logits, by\): expected.*context"):

        @operator("bare", on="logits", paper="none")
        def bare(logits: list[Tensor], by: float = 2.0) -> Tensor:
            return by * sum(logits)

    assert "bare" not in OPERATORS


def test_papers_have_addresses() -> None:
    assert all(how.paper.startswith("https://") for how in OPERATORS.values())


def test_sum_that_overflows_is_refused() -> None:
    huge = {k: torch.full_like(v, 3e38) for k, v in part("0").state.items()}
    modules = [replace(part(n), state=huge, mask={}) for n in "01"]
    with pytest.raises(CompositionError, match=r"sum makes values of .* not finite"):
        compose(modules, "sum")


def test_statistics_of_a_unit_come_from_the_modules_that_keep_it() -> None:
    """A normalisation weight of 0 means that pruning took the unit from that module."""
    shape, model = (3, 8, 8), "resnet18(width=2)"
    modules = []
    for name, mean, kept in (("0", 1.0, [1.0, 0.0]), ("1", 4.0, [0.0, 0.0])):
        module = part(name, model, shape)
        state = {k: torch.full_like(v, 0.5) for k, v in module.state.items()}
        state["norm.running_mean"] = torch.full((2,), mean)
        state["norm.weight"] = torch.tensor(kept)
        modules.append(replace(module, state=state, mask={}))
    joined = compose(modules, "sum").networks[0].network.state_dict()
    assert joined["norm.running_mean"].tolist() == [1.0, 2.5]
