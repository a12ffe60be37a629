"""What is done around an operator: samples, alignment, BatchNorm, calibration, one network."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from intarsia.composition import OPERATORS, Composition, MergeContext, compose
from intarsia.data import Split, load_data
from intarsia.errors import CompositionError, DataError, FileError, RecipeError
from intarsia.files import digest_of
from intarsia.models import initialise
from intarsia.models.wiring import axis_sizes, hidden_axes, take_units, unit_mask
from intarsia.modules import Architecture, Module
from small_modules import same, small_module

CATALOGUE = ("0", "1", "2", "3")
MLP, SHAPE = "mlp(8, 6)", (5,)
GENERATOR = torch.Generator().manual_seed(3)
X = torch.randint(0, 256, (60, *SHAPE), dtype=torch.uint8, generator=GENERATOR)
SAMPLES = Split(X, torch.arange(60) % 4)
EVERY = [
    *OPERATORS,
    "ties(preset='mergekit')",
    "dare(seed=3)",
    "weighted(weights={'1': 0.5, '3': -1.0})",
    "task_arithmetic(scale=0.7)",
]


@cache
def part(name: str, model: str = MLP, shape: tuple[int, ...] = SHAPE, seed: int = 0) -> Module:
    """A module of a real origin: some of its weights pruned, the others moved a little."""
    origin = initialise(model, shape, 4, seed)
    state = {k: v.detach().clone() for k, v in origin.state_dict().items()}
    generator = torch.Generator().manual_seed(int(name) + 1)
    digest, mask = digest_of("origin", state), {}
    for key, parameter in origin.named_parameters():
        mask[key] = torch.rand(parameter.shape, generator=generator) < 0.6
        moved = state[key] + 0.3 * torch.randn(parameter.shape, generator=generator)
        state[key] = moved * mask[key]
    return small_module(
        name, state, mask, CATALOGUE, model, shape, origin=digest, provenance={"seed": seed}
    )


@pytest.mark.parametrize("how", EVERY)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_every_operator_adds_and_removes_exactly(how: str, data: Any) -> None:
    known = CATALOGUE[: OPERATORS.entry(how).most]
    names = data.draw(st.lists(st.sampled_from(known), unique=True, min_size=1))
    expected = Composition([part(n) for n in names], how, samples=SAMPLES)
    other = Composition([part(n) for n in data.draw(st.permutations(names))], how, samples=SAMPLES)
    others = [n for n in known if n not in names]
    other.add(*(part(n) for n in others))
    for name in data.draw(st.permutations(others)):
        other.remove(data.draw(st.sampled_from([name, part(name)])))
    assert same(other, expected, X)


@pytest.mark.parametrize(
    ("how", "options"),
    [
        ("sum", {"align": "weights"}),
        ("mean", {"align": "activations"}),
        ("logits", {"calibrate": True}),
        ("inlay", {"calibrate": True}),
        ("probabilities", {"calibrate": True}),
    ],
)
def test_options_are_kept_by_changes_and_files(
    how: str, options: dict[str, Any], tmp_path: Path
) -> None:
    merged = compose([part(n) for n in CATALOGUE], how, samples=SAMPLES, **options)
    less = compose([part(n) for n in "013"], how, samples=SAMPLES, **options)
    assert same(merged - "2", less, X)
    assert same(less + part("2"), merged, X)
    merged.save(tmp_path / "whole")
    loaded = Composition.load(tmp_path / "whole")
    assert same(loaded, merged, X)
    assert same(loaded.remove("2"), less, X)
    less.save(tmp_path / "less")
    assert (tmp_path / "less").stat().st_size < (tmp_path / "whole").stat().st_size


# The others trim, drop, scale or read anew a single part too.
CHANGES_ONE = (
    *("ties", "dare", "della", "iso_c", "weighted(", "task_arithmetic("),
    *("own", "stick_breaking", "centroid", "entropy_router"),
)


@pytest.mark.parametrize("how", [how for how in EVERY if not how.startswith(CHANGES_ONE)])
def test_one_part_alone_is_itself(how: str) -> None:
    merged = compose([part("1")], how, samples=SAMPLES)
    with torch.no_grad():
        assert torch.allclose(
            torch.softmax(merged(X) / 5, 1),
            torch.softmax(part("1").to_module()(X) / 5, 1),
            atol=1e-5,
        )


def test_alignment_joins_what_comes_from_two_origins() -> None:
    parts = [part("0"), part("1", seed=1)]
    with pytest.raises(CompositionError, match="align"):
        compose(parts, "sum")
    aligned = compose(parts, align="weights")
    with pytest.raises(CompositionError, match="base='zero'"):
        compose(parts, "task_arithmetic", align="weights")
    assert compose(parts, "task_arithmetic(base='zero')", align="weights").nonzero > 0
    assert aligned.parts[1] is parts[1]


def test_alignment_finds_a_relabelled_copy() -> None:
    """Joined with itself under other labels, a module gives twice its first and last weights."""
    one = replace(part("0"), mask={}, state=initialise(MLP, SHAPE, 4, 5).state_dict())
    wiring = one.architecture.wiring()
    sizes = axis_sizes(wiring, one.state)
    keep = {a: torch.randperm(sizes[a], generator=GENERATOR) for a in hidden_axes(wiring)}
    other = replace(one, name="1", rewarded=("1",), state=take_units(one.state, wiring, keep))
    joined = compose([one, other], align="weights").joined
    assert joined is not None
    for name, tensor in joined.state.items():
        assert torch.equal(tensor, 2 * one.state[name])


def test_alignment_is_for_weights() -> None:
    with pytest.raises(CompositionError, match="works on logits: leave align out"):
        compose([part("0"), part("1")], "logits", align="weights")
    with pytest.raises(RecipeError, match="unknown alignment 'weight': did you mean 'weights'"):
        compose([part("0"), part("1")], align="weight")
    with pytest.raises(CompositionError, match="needs samples"):
        compose([part("0"), part("1")], align="activations")


def test_statistics_are_recomputed_from_samples() -> None:
    shape, model = (3, 8, 8), "resnet18(width=2)"
    parts = [part(n, model, shape) for n in "01"]
    inputs = torch.randint(0, 256, (64, *shape), dtype=torch.uint8, generator=GENERATOR)
    merged = compose(parts, "sum", samples=inputs)
    assert "recomputed from 64 samples" in merged.report["notes"][0]
    assert not any(layer.training for layer in merged.modules())
    plain = compose(parts, "sum", samples=inputs, recalibrate=False)
    assert "as was asked for" in plain.report["notes"][0]
    network = merged.networks[0].network
    first = next(layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d))
    seen: list[Tensor] = []
    hook = first.register_forward_hook(lambda _, given, __: seen.append(given[0]))
    with torch.no_grad():
        merged(inputs)
    hook.remove()
    assert torch.allclose(first.running_mean, seen[0].mean((0, 2, 3)), atol=1e-5)
    other = next(m for m in plain.networks[0].network.modules() if isinstance(m, nn.BatchNorm2d))
    assert not torch.allclose(first.running_mean, other.running_mean, atol=1e-3)


def test_samples_of_a_split_are_matched_by_name() -> None:
    backwards = Split(X, 3 - SAMPLES.y, CATALOGUE[::-1])
    parts = [part(name) for name in "01"]
    one, other = (compose(parts, "logits", samples=s, calibrate=True) for s in (SAMPLES, backwards))
    assert same(one, other, X)


def test_calibration_helps_a_part_that_is_too_loud() -> None:
    """Logits with one part ten times too loud: its scale is found, and the answers come right."""
    data = load_data("digits")
    x, y = data.validation.x, data.validation.y
    labels = (y >= 5).long()
    brightness = data.scaling(x).flatten(1)
    weights = torch.linalg.pinv(brightness) @ (2.0 * labels.float() - 1)
    parts = [_line(0, -weights), _line(1, 10 * weights + 1.0)]
    samples = Split(x, labels)
    plain, merged = (compose(parts, "logits", samples=samples, calibrate=c) for c in (False, True))
    result = merged.report["calibration"]
    assert result["accuracy_with"] > result["accuracy_without"] + 0.1
    assert (plain.predict(x) == labels).double().mean() == pytest.approx(
        result["accuracy_without"], abs=1e-9
    )
    assert (merged.predict(x) == labels).double().mean() > result["accuracy_without"] + 0.1
    inlaid = compose(parts, "inlay", samples=samples, calibrate=True)
    with torch.no_grad():
        assert torch.allclose(inlaid(x), merged(x), atol=1e-4)


def _line(number: int, weights: Tensor) -> Module:
    """Two outputs, one of them linear in the inputs."""
    weight = torch.zeros(2, 64)
    weight[number] = weights
    return Module(
        name=str(number),
        state={"layers.0.weight": torch.eye(64), "layers.0.bias": torch.zeros(64),
               "layers.1.weight": weight},
        mask={},
        rewarded=(str(number),),
        catalogue=("0", "1"),
        architecture=Architecture.of("mlp(64)", (1, 8, 8), 2),
        scaling=load_data("digits").scaling,
        temperature=1.0,
        origin="0" * 64,
    )  # fmt: skip


def _with_other(name: str) -> Module:
    origin = initialise(MLP, SHAPE, 5, int(name)).state_dict()
    state = {key: 3 * tensor for key, tensor in origin.items()}
    architecture = Architecture.of(MLP, SHAPE, 5)
    return replace(part(name), state=state, mask={}, architecture=architecture)


def _output_norm(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(*shape, 6), nn.Linear(6, outputs), nn.BatchNorm1d(outputs))


def _normalised(name: str) -> Module:
    network = initialise(_output_norm, SHAPE, 4, int(name))
    for key, tensor in network.state_dict().items():
        if "running" in key:
            tensor.fill_(0.1 + int(name))
    return replace(
        part(name),
        state=network.state_dict(),
        mask={},
        architecture=Architecture(None, SHAPE, 4),
        factory=_output_norm,
    )


@pytest.mark.parametrize("how", ["logits", "own", "probabilities"])
@pytest.mark.parametrize("make", [_with_other, _normalised])
def test_what_is_calibrated_is_what_answers(how: str, make: Any) -> None:
    """Also where logits do not scale with the last weights: an explicit other, a normalisation."""
    parts = [make(n) for n in "012"]
    merged = compose(parts, how, samples=SAMPLES, calibrate=True)
    result = merged.report["calibration"]
    with torch.no_grad():
        each = [result["scales"][m.name] * m.to_module()(X) for m in parts]
        joined = OPERATORS[how](each, MergeContext(tuple(parts)))
        offsets = torch.tensor([result["offsets"].get(c, 0.0) for c in CATALOGUE])
        assert torch.allclose(merged(X), joined + offsets, atol=1e-4)


def test_a_network_that_does_not_scale_is_not_calibrated_as_one() -> None:
    with pytest.raises(CompositionError, match=r"off those that were calibrated.*logits"):
        compose([_normalised("0")], "sum", samples=SAMPLES, calibrate=True)
    with pytest.raises(CompositionError, match="mixes the units"):
        compose([_with_other("0")], "sum", samples=SAMPLES, calibrate=True)


@pytest.mark.parametrize("labels", [torch.arange(60) % 2, torch.arange(60) % 4, torch.zeros(60)])
def test_both_halves_of_the_samples_have_all_classes(labels: Tensor) -> None:
    """Labels that alternate would give the fit of one half classes that the other has not."""
    samples = Split(X, labels.long())
    result = compose([part(n) for n in CATALOGUE], "logits", samples=samples, calibrate=True).report
    scores = result["calibration"]
    assert scores["loss_with"] <= scores["loss_without"] + 0.1
    assert scores["accuracy_with"] > 0.1
    assert all(0 < scale < 1.1e3 + 1 for scale in scores["scales"].values())


@pytest.mark.parametrize("how", ["logits", "inlay"])
def test_a_calibration_that_does_harm_says_so(how: str) -> None:
    """Labels that follow nothing: what fits one half of them is wrong for the other."""
    y = torch.randint(4, (60,), generator=torch.Generator().manual_seed(3))
    parts = [part(name) for name in CATALOGUE]
    harmed = compose(parts, how, samples=Split(X, y), calibrate=True).report
    before, after = (harmed["calibration"][f"loss_{key}"] for key in ("without", "with"))
    assert after > before
    said = f"not fitted on larger, {before:.3g} to {after:.3g}: leave it out, or give more samples"
    assert [note for note in harmed["notes"] if said in note]
    answers = compose(parts, how).predict(X)
    good = compose(parts, how, samples=Split(X, answers), calibrate=True).report
    assert good["calibration"]["loss_with"] <= good["calibration"]["loss_without"]
    assert not [note for note in good["notes"] if "calibration" in note]


@pytest.mark.parametrize("how", ["mean", "weighted(weights=0.5)", "dare(base='zero')"])
def test_statistics_of_units_that_an_operator_changes_are_recomputed(how: str) -> None:
    """Territories keep their statistics in a sum; a mean makes what a layer reads smaller."""
    shape, images = (1, 8, 8), torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    parts = []
    for number in range(2):
        module = part(str(number), "resnet18(width=2)", shape)
        wiring = module.architecture.wiring()
        sizes = axis_sizes(wiring, module.state)
        owned = {a: torch.arange(sizes[a]) % 2 == number for a in hidden_axes(wiring)}
        mask = {
            k: unit_mask(wiring[k], tuple(module.state[k].shape), owned)
            for k, entry in module.plan.items()
            if entry.learned
        }
        kept = {k: v * mask[k] if k in mask else v for k, v in module.state.items()}
        parts.append(replace(module, state=kept, mask=mask))
    assert "hold as they are" in compose(parts, "sum", samples=images).report["notes"][0]
    assert "recomputed from 40" in compose(parts, how, samples=images).report["notes"][0]


def test_calibration_is_refused_where_parts_have_no_logits_of_their_own() -> None:
    parts = [part("0"), part("1")]
    with pytest.raises(CompositionError, match="mixes the units of its parts"):
        compose(parts, "sum", samples=SAMPLES, calibrate=True)
    with pytest.raises(CompositionError, match="needs labelled samples"):
        compose(parts, "logits", samples=X, calibrate=True)
    with pytest.raises(CompositionError, match="4 labelled samples are too few"):
        compose(parts, "logits", samples=Split(X[:4], SAMPLES.y[:4]), calibrate=True)


def test_samples_are_few_and_checked() -> None:
    many = Split(torch.zeros(2500, *SHAPE), torch.zeros(2500, dtype=torch.int64))
    kept = compose([part("0")], "logits", samples=many).samples
    assert kept is not None
    assert len(kept) == 1000
    assert compose([part("0")], "logits", samples=X.numpy()).samples.y.eq(-1).all()
    with pytest.raises(CompositionError, match="fisher looks at samples and has none"):
        compose([part("0"), part("1")], "fisher")
    with pytest.raises(CompositionError, match="label 4 for a catalogue of 4"):
        compose([part("0")], samples=Split(X[:2], torch.tensor([0, 4])))
    with pytest.raises(CompositionError, match="label -2 for a catalogue of 4"):
        compose([part("0")], samples=Split(X[:2], torch.tensor([3, -2])))
    with pytest.raises(DataError, match="NaN or infinite"):
        compose([part("0")], samples=np.full((3, 5), np.nan))
    with pytest.raises(CompositionError, match="samples are empty"):
        compose([part("0")], samples=X[:0])


def test_data_are_relabelled_by_name() -> None:
    digits = load_data("digits")
    module = replace(_line(0, torch.zeros(64)), catalogue=("9", "1"), rewarded=("9",), name="9")
    kept = compose([module], samples=digits).samples
    assert kept is not None
    names = [digits.catalogue[int(y)] for y in digits.validation.y]
    expected = [{"9": 0, "1": 1}.get(name, -1) for name in names]
    assert kept.y.tolist() == expected


def test_weight_for_no_part_is_a_mistake_at_first_and_none_after_a_removal() -> None:
    how = "weighted(weights={'1': 0.5})"
    with pytest.raises(CompositionError, match="a weight is given for '1'"):
        compose([part("0"), part("2")], how)
    with pytest.raises(CompositionError, match="a density is given for '1': known: 0, 2"):
        compose([part("0"), part("2")], "ties(density={'1': 0.5})")
    left = compose([part("0"), part("1")], how).remove("1")
    with torch.no_grad():
        assert torch.equal(left(X), part("0").to_module()(X))


def test_compact_is_smaller_and_answers_the_same() -> None:
    merged = compose([part(n) for n in CATALOGUE], "inlay")
    small = merged.compact()
    with torch.no_grad():
        assert torch.allclose(small.to_module()(X), merged(X), atol=1e-5)
    with pytest.raises(CompositionError, match="logits are joined"):
        compose([part("0")], "logits").compact()


def test_origin_that_cannot_be_made_again_is_explained() -> None:
    parts = [replace(part(n), provenance={"seed": 7}) for n in "01"]
    with pytest.raises(CompositionError, match="cannot be made anew from its seed 7"):
        compose(parts, "task_arithmetic")
    parts = [replace(part(n), provenance={"seed": 2**80}) for n in "01"]
    with pytest.raises(CompositionError, match="cannot be made anew from its seed"):
        compose(parts, "task_arithmetic")


def test_options_of_a_newer_file_are_refused(tmp_path: Path) -> None:
    from intarsia.composition import composition_file as stored
    from intarsia.modules import file

    merged = compose([part("0")])
    fields, tensors = part("0").packed()
    held = {f"0/{key}": tensor for key, tensor in tensors.items()}
    header = {
        "operator": {"name": "sum", "arguments": {}},
        "parts": [fields],
        "options": {"polish": True},
    }
    file.write(tmp_path / "whole", stored.KIND, header, held)
    with pytest.raises(FileError, match=r"polish.*upgrade intarsia"):
        Composition.load(tmp_path / "whole")
    bad = {**held, "samples/x": torch.zeros(3, 5)}
    file.write(tmp_path / "bad", stored.KIND, {**header, "options": {}}, bad)
    with pytest.raises(FileError, match="its samples are not 1 to 1000 inputs"):
        Composition.load(tmp_path / "bad")
    other = {**held, "samples/x": torch.zeros(3, 6), "samples/y": torch.zeros(3, dtype=torch.int64)}
    file.write(tmp_path / "other", stored.KIND, {**header, "options": {}}, other)
    with pytest.raises(FileError, match="another shape"):
        Composition.load(tmp_path / "other")
    assert merged.report["notes"] == []


class Places(nn.Module):
    """A network with whole numbers and truths among its buffers, and a count."""

    order: Tensor
    seen: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(9, 6), nn.Linear(6, 3)
        self.register_buffer("order", torch.arange(4))
        self.register_buffer("seen", torch.ones(4, 1, dtype=torch.bool))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.where(self.seen, self.words(x), 0)[:, self.order].mean(1))


def adopted(networks: list[nn.Module], base: nn.Module) -> list[Module]:
    names = ("a", "b", "c")
    return [
        Module.of(network, rewarded=name, catalogue=names, shape=(4,), base=base)
        for name, network in zip(names, networks, strict=False)
    ]


@pytest.mark.parametrize("name", ["order", "seen"])
def test_places_and_masks_that_differ_are_said(name: str) -> None:
    base, other = Places(), Places()
    other.load_state_dict(base.state_dict())
    other.count += 7
    same_places = compose(adopted([base, other], base), "mean")
    assert same_places.report["notes"] == []  # of counts the largest is taken
    assert same_places.joined is not None
    assert int(same_places.joined.state["count"]) == 7
    buffer = other.get_buffer(name)
    buffer.copy_(buffer.flip(0) if name == "order" else torch.zeros_like(buffer))
    with pytest.warns(UserWarning, match=f"the buffer '{name}'.*the largest is taken"):
        merged = compose(adopted([base, other], base), "mean")
    assert len(merged.report["notes"]) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_joined_in_double_and_rounded_once(dtype: torch.dtype) -> None:
    base = Places().to(dtype)
    networks: list[nn.Module] = []
    for seed in range(3):
        torch.manual_seed(seed)
        network = Places().to(dtype)
        network.load_state_dict({k: t * 20 for k, t in network.state_dict().items()})
        network.load_state_dict({k: getattr(base, k) for k in ("order", "seen", "count")}, False)
        networks.append(network)
    parts = adopted(networks, base)
    x = torch.randint(0, 9, (5, 4))
    logits = compose(parts, "logits")(x)
    assert logits.dtype == torch.float32  # what parts say in half is added up in float32
    with torch.no_grad():
        expected = sum((network(x).float() for network in networks), start=torch.zeros(()))
    assert torch.equal(logits, expected)
    merged = compose([replace(part.without_base(), origin="o") for part in parts], "mean").joined
    assert merged is not None
    for key, tensor in merged.state.items():
        if tensor.is_floating_point():
            mean = sum(network.state_dict()[key].double() for network in networks) / 3
            assert torch.equal(tensor, mean.to(dtype)), key
    compose(parts, "entropy_router")(x)  # what is far below all others has room in float32


class WithNothing(nn.Module):
    """A layer beside which lie parameters without an entry."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.matrix, self.vector = (nn.Parameter(torch.zeros(shape)) for shape in ((0, 3), (0,)))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x) + self.matrix.sum() + self.vector.sum()


@pytest.mark.parametrize(
    "how", [n for n, entry in OPERATORS.items() if entry.on == "weights"] + EVERY[-4:-3]
)
def test_parameters_without_entries_stay_so(how: str) -> None:
    base, networks = WithNothing(), [WithNothing(), WithNothing()]
    samples = Split(torch.randn(9, 4), torch.arange(9) % 3)
    merged = compose(adopted([*networks], base), how, samples=samples).joined
    assert merged is not None
    assert (merged.state["matrix"].shape, merged.state["vector"].shape) == ((0, 3), (0,))
    assert bool(torch.isfinite(merged.state["head.weight"]).all())
