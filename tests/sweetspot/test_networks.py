"""Pattern networks: layouts, rendering against a plain loop, banks and their file."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from damage import flip
from intarsia.errors import DamagedError, FileError, ModelError, RecipeError
from intarsia.modules.file import write
from intarsia.sweetspot import PatternBank, PatternLayout, PatternNetwork, inflation, render
from intarsia.sweetspot.networks import coordinates, read_blocks, with_masks

BLOCKS = (("cache", 2), ("gaussian", 2), ("sin", 1), ("sigmoid", 1), ("relu", 1), ("tanh", 1))


def some_network(seed: int = 0, depth: int = 2, name: str = "") -> PatternNetwork:
    layout = PatternLayout(BLOCKS, depth)
    draw = torch.Generator().manual_seed(seed)
    weights = tuple(torch.randn(shape, generator=draw) for shape in layout.shapes)
    return PatternNetwork(layout, weights, name=name)


def test_a_layout_counts_its_weights() -> None:
    layout = PatternLayout((("cache", 15), ("gaussian", 4), ("identity", 2), ("sin", 1)), 12)
    assert (layout.width, layout.parameters) == (22, 4 * 22 + 11 * 22 * 22 + 3 * 22)
    assert layout.shapes[0] == (22, 4)
    assert layout.shapes[-1] == (3, 22)
    assert len(layout.shapes) == 13
    assert layout.slices[1] == ("gaussian", slice(15, 19))


@pytest.mark.parametrize("width", [1, 3, 5, 22, 44, 192])
def test_a_width_keeps_the_proportions(width: int) -> None:
    layout = PatternLayout.of_width(width, 2)
    assert layout.width == width
    for name, units in layout.blocks:
        share = {"cache": 15, "gaussian": 4, "identity": 2, "sin": 1}[name] / 22
        assert abs(units - share * width) < 1


def test_blocks_are_read_from_text_and_mappings() -> None:
    expected = (("cache", 3), ("sin", 1))
    assert read_blocks("cache 3, sin 1") == read_blocks("cache=3,sin:1") == expected
    assert (
        read_blocks({"cache": 3, "sin": 1}) == read_blocks([["cache", 3], ["sin", 1]]) == expected
    )


@pytest.mark.parametrize(
    "blocks", ["cache", "cash 3", "cache 0", "cache -1", [], [["cache", 1.5]], 7, "cache 5000", ""]
)
def test_wrong_blocks_are_refused(blocks: object) -> None:
    with pytest.raises(ModelError, match="block"):
        PatternLayout(blocks, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("depth", [0, -1, 1.5, True, 10**6])
def test_a_wrong_depth_is_refused(depth: object) -> None:
    with pytest.raises(ModelError, match="depth"):
        PatternLayout(BLOCKS, depth)  # type: ignore[arg-type]


def test_a_pixel_is_what_a_plain_loop_makes_of_it() -> None:
    network, size = some_network(), 5
    image, maps = network.image(size), network.maps(size)
    functions = {
        "cache": lambda z: z,
        "gaussian": lambda z: 2 * math.exp(-z * z) - 1,
        "sin": math.sin,
        "sigmoid": lambda z: 2 / (1 + math.exp(-z)) - 1,
        "relu": lambda z: max(z, 0.0),
        "tanh": math.tanh,
    }
    for row, column in [(0, 0), (1, 3), (4, 2)]:
        x, y = -1 + column / 2, -1 + row / 2
        values = [x, y, 1.4 * math.hypot(x, y), 1.0]
        for layer, matrix in enumerate(network.weights[:-1]):
            sums = [
                sum(w * v for w, v in zip(line, values, strict=True)) for line in matrix.tolist()
            ]
            kinds = network.layout.activations
            values = [functions[kind](z) for kind, z in zip(kinds, sums, strict=True)]
            assert maps[layer][:, row, column].tolist() == pytest.approx(values, abs=1e-5)
        hsv = [
            sum(w * v for w, v in zip(r, values, strict=True)) for r in network.weights[-1].tolist()
        ]
        assert image[row, column].tolist() == pytest.approx(_rgb(*hsv), abs=1e-4)


def _rgb(h: float, s: float, v: float) -> tuple[float, float, float]:
    import colorsys

    return colorsys.hsv_to_rgb((h + 1) % 1, min(max(s, 0), 1), min(abs(v), 1))


def test_coordinates_go_right_and_down() -> None:
    inputs = coordinates(3).reshape(4, 3, 3)
    assert inputs[0, 0].tolist() == [-1, 0, 1]
    assert inputs[1, :, 0].tolist() == [-1, 0, 1]
    assert inputs[2, 0, 0] == pytest.approx(1.4 * math.sqrt(2))
    assert bool((inputs[3] == 1).all())


@pytest.mark.parametrize("size", [0, 1, -4, 2.5, 10**5, True])
def test_odd_sizes_are_refused(size: object) -> None:
    with pytest.raises(RecipeError, match="size"):
        some_network().image(size)  # type: ignore[arg-type]


def test_a_bank_renders_as_its_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    networks = [some_network(seed) for seed in range(5)]
    bank = PatternBank.of(networks)
    each = torch.stack([network.image(8) for network in networks])
    torch.testing.assert_close(bank.images(8), each, atol=1e-5, rtol=0)
    monkeypatch.setattr("intarsia.sweetspot.networks.CHUNK", 8 * 8 * 8 * 2)  # two at a time
    torch.testing.assert_close(render(bank.layout, bank.weights, 8), each, atol=1e-5, rtol=0)


def test_what_a_mask_holds_is_zero() -> None:
    network = some_network()
    masks = [torch.ones_like(w, dtype=torch.bool) for w in network.weights]
    masks[1][2] = False
    held = with_masks(network, masks)
    assert not held.weights[1][2].any()
    assert network.weights[1][2].all()
    assert held.nonzero == network.nonzero - network.layout.width


def test_a_network_refuses_what_is_not_its_layout() -> None:
    network = some_network()
    with pytest.raises(ModelError, match="needs 3"):
        PatternNetwork(network.layout, network.weights[:2])
    with pytest.raises(ModelError, match="weights 1 has shape"):
        PatternNetwork(network.layout, (network.weights[0], torch.ones(8, 7), network.weights[2]))
    with pytest.raises(ModelError, match="finite"):
        PatternNetwork(network.layout, tuple(w * float("nan") for w in network.weights))
    with pytest.raises(ModelError, match="true and false"):
        PatternNetwork(network.layout, network.weights, network.weights)


def test_banks_have_one_layout() -> None:
    with pytest.raises(ModelError, match="one layout"):
        PatternBank.of([some_network(), some_network(depth=3)])
    with pytest.raises(ModelError, match="at least one"):
        PatternBank.of([])
    bank = PatternBank.of([some_network()])
    with pytest.raises(ModelError, match="losses"):
        PatternBank(bank.layout, bank.weights, losses=(1.0, 2.0))


def test_a_bank_is_a_sequence() -> None:
    bank = PatternBank.of([some_network(seed, name=f"n{seed}") for seed in range(4)])
    assert [network.name for network in bank] == ["n0", "n1", "n2", "n3"]
    part = bank[1:3]
    assert isinstance(part, PatternBank)
    assert part.names == ("n1", "n2")
    assert torch.equal(part[0].weights[0], bank[1].weights[0])
    assert bank.nonzero == tuple(network.nonzero for network in bank)
    assert bank.best.name == "n0"
    assert replace(bank, losses=(float("nan"), 0.3, 0.1, 0.2)).best.name == "n2"
    with pytest.raises(ModelError, match=r"take one of them, such as bank\[0\]"):
        inflation(bank)  # type: ignore[arg-type]
    assert repr(bank).startswith("PatternBank(4 networks, ")


def test_files_keep_everything(tmp_path: Path) -> None:
    masks = tuple(torch.rand(2, *shape) > 0.5 for shape in PatternLayout(BLOCKS, 2).shapes)
    stacked = PatternBank.of([some_network(0, name="a"), some_network(1, name="b")])
    bank = PatternBank(
        stacked.layout, stacked.weights, masks, stacked.names, (0.5, float("nan")), {"steps": 3}
    )
    bank.save(tmp_path / "bank.safetensors")
    loaded = PatternBank.load(tmp_path / "bank.safetensors")
    assert (loaded.layout, loaded.names, loaded.report) == (bank.layout, bank.names, bank.report)
    assert loaded.losses is not None
    assert loaded.losses[0] == 0.5
    assert math.isnan(loaded.losses[1])
    assert loaded.masks is not None
    for ours, theirs in zip((*bank.weights, *masks), (*loaded.weights, *loaded.masks), strict=True):
        assert torch.equal(ours, theirs)
    with pytest.raises(FileError, match="2 pattern networks"):
        PatternNetwork.load(tmp_path / "bank.safetensors")
    bank[1].save(tmp_path / "one.safetensors")
    assert torch.equal(PatternNetwork.load(tmp_path / "one.safetensors").image(4), bank[1].image(4))


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.safetensors"
    some_network().save(path)
    content = flip(path, -3)
    with pytest.raises(DamagedError, match=r"one\.safetensors.*damaged"):
        PatternNetwork.load(path)
    path.write_bytes(content[:-40])
    with pytest.raises(FileError, match="cut off"):
        PatternNetwork.load(path)
    with pytest.raises(FileError, match="no such file"):
        PatternNetwork.load(tmp_path / "none.safetensors")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blocks": [["cash", 8]]}, "unknown activation"),
        ({"depth": 3}, "does not hold"),
        ({"names": ["a", "b"]}, "does not hold"),
        ({"masked": True}, "does not hold"),
        ({"report": []}, "report"),
        ({"more": 1}, "unknown more"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    network, path = some_network(), tmp_path / "x.safetensors"
    fields = {
        "blocks": [list(b) for b in BLOCKS], "depth": 2, "names": ["a"], "masked": False,
        "report": {},
    }  # fmt: skip
    tensors = {f"weights/{n:03}": w[None] for n, w in enumerate(network.weights)}
    write(path, "intarsia-patterns", fields, tensors)
    assert PatternBank.load(path).names == ("a",)
    write(path, "intarsia-patterns", {**fields, **change}, tensors)
    with pytest.raises(FileError, match=message):
        PatternBank.load(path)


def test_instruments_are_methods_too() -> None:
    network = some_network()
    swept = network.sweep((1, 2, 3), steps=(0.0, 0.5), size=4)
    torch.testing.assert_close(swept.pictures[0], network.image(4), atol=1e-6, rtol=0)
    changed = network.perturb([(1, 2, 3)], 0.5, size=4)
    torch.testing.assert_close(changed[0], swept.pictures[1], atol=1e-5, rtol=0)
    assert network.inflation(size=8, weights=3).tried == 3


def test_blocks_that_name_no_activation_are_refused() -> None:
    with pytest.raises(ModelError, match=r"unknown activation \['sin'\]"):
        PatternLayout([[["sin"], 3]], 2)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="'sin' has '999"):
        PatternLayout("sin " + "9" * 5000, 2)  # type: ignore[arg-type]
