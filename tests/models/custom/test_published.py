"""Classifiers of transformers and timm, made small and without weights from anywhere."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import intarsia as ia
from intarsia.data import Data
from intarsia.data.dataset import Split
from intarsia.errors import ModelError
from intarsia.models import copies_of
from intarsia.models.axes import axis_sizes, hidden_axes
from intarsia.models.custom.published import TokenRows
from intarsia.models.units import take_units
from intarsia.modules import logits_of

NO_TIMM = "timm is not installed, or does not import"
SMALL = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
SETTINGS: dict[str, Any] = {
    "partition": [["a"], ["b"]],
    "epochs": 1,
    "rounds": 0,
    "sparsity": 0,
    "progress": False,
    "device": "cpu",
}


def made(kind: str) -> nn.Module:
    """A classifier of five classes; the configurations are transformers' own."""
    package = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if kind == "vit":
        config = package.ViTConfig(
            hidden_size=8, image_size=6, patch_size=3, num_channels=2, num_labels=5, **SMALL
        )
        return package.ViTForImageClassification(config).eval()
    words = {"vocab_size": 11, "hidden_size": 8, "max_position_embeddings": 8, "num_labels": 5}
    if kind == "bert":
        return package.BertForSequenceClassification(
            package.BertConfig(**words, **SMALL, pad_token_id=0)
        ).eval()
    several = SMALL | {"num_attention_heads": 4, "num_key_value_heads": 2}
    return package.LlamaForSequenceClassification(
        package.LlamaConfig(**words, **several, pad_token_id=0)
    ).eval()


def inputs(kind: str, rows: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    if kind == "vit":
        return torch.randn(rows, 2, 6, 6, generator=generator)
    ids = torch.randint(1, 11, (rows, 6), generator=generator)
    ids[::2, 4:] = 0  # padding
    return ids


def data_for(kind: str) -> Data:
    splits = [Split(inputs(kind, rows), torch.arange(rows) % 3) for rows in (24, 12, 12)]
    return Data.build(kind, ("a", "b", "c"), *splits, "none")


@pytest.fixture(params=["vit", "bert", "llama"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(kind: str, tmp_path: Path) -> Path:
    made(kind).save_pretrained(tmp_path)
    return tmp_path


def test_a_folder_is_read_and_its_units_may_change_places(kind: str, folder: Path) -> None:
    network = ia.published(f"hf/{folder}")
    x = inputs(kind, 4)
    given = {"pixel_values": x} if kind == "vit" else TokenRows(0)(x)
    with torch.no_grad():
        expected = made(kind)(**given).logits
        torch.testing.assert_close(network(x).logits, expected)
        built = ia.build(copies_of(network), tuple(x.shape[1:]), 5)
        wiring = ia.wiring_of(built, tuple(x.shape[1:]))
        sizes = axis_sizes(wiring, built.state_dict())
        assert len(hidden_axes(wiring)) >= 3
        orders = {axis: torch.arange(sizes[axis]).roll(1) for axis in hidden_axes(wiring)}
        built.load_state_dict(take_units(built.state_dict(), wiring, orders))
        torch.testing.assert_close(built.eval()(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore::intarsia.modules.health.HealthWarning")
def test_modules_are_trained_from_it_by_name(kind: str, folder: Path) -> None:
    data, source = data_for(kind), f"hf/{folder}"
    bank = ia.train(data, base=source, **SETTINGS)
    assert bank[0].base is not None
    assert bank[0].base.name == source
    merged = ia.compose(bank, "task_arithmetic")
    assert torch.isfinite(logits_of(merged, data.test.x)).all()
    bank[0].save(folder / "a.safetensors")
    loaded = ia.Module.load(folder / "a.safetensors", model=ia.published(source), base=source)
    assert loaded.digest == bank[0].digest


def test_a_trained_one_is_a_module_as_it_is(kind: str) -> None:
    network, x = made(kind), inputs(kind, 4)
    if kind != "vit":
        ia.collated(network, TokenRows(0))
    with torch.no_grad():
        expected = network(x).logits
    module = ia.Module.of(network, rewarded="b", catalogue="abcde", shape=tuple(x.shape[1:]))
    torch.testing.assert_close(logits_of(module.to_module(), x), expected)


def test_what_is_made_of_several_becomes_a_plain_network(kind: str) -> None:
    base, x = made(kind), inputs(kind, 5)
    shared: dict[str, Any] = {"catalogue": "abcde", "shape": tuple(x.shape[1:]), "base": base}
    parts = []
    for name in "ab":
        network = made(kind)
        if kind != "vit":
            ia.collated(network, TokenRows(0))
        with torch.no_grad():
            for parameter in network.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
        parts.append(ia.Module.of(network, rewarded=name, **shared))
    for how in ("task_arithmetic", "logits"):
        merged = ia.compose(parts, how)
        network = ia.to_network(merged)
        with torch.no_grad():
            for rows in (1, 2, 5):
                torch.testing.assert_close(network(x[:rows]), merged(x[:rows]))
        kept = {name.partition("network.")[2] for name, _ in network.named_parameters()}
        assert kept == set(dict(base.named_parameters()))


def test_weights_that_are_not_there_are_not_drawn_at_random(tmp_path: Path) -> None:
    body = made("bert").bert
    body.save_pretrained(tmp_path)
    head = ia.published(f"hf/{tmp_path}").classifier
    assert not head.weight.any()
    assert not head.bias.any()
    body.pooler = None
    body.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"no weights for 'bert\.pooler\.dense\.bias'"):
        ia.published(f"hf/{tmp_path}")


def test_only_safetensors_are_read_and_no_code_of_a_repository(tmp_path: Path) -> None:
    network = made("bert")
    network.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(network.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"transformers cannot load.*safetensors"):
        ia.published(f"hf/{tmp_path}")
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "theirs", "auto_map": {"AutoConfig": "theirs.Config"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "theirs.py").write_text("raise SystemExit('this must never run')")
    with pytest.raises(ModelError, match="transformers cannot load"):
        ia.published(f"hf/{tmp_path}")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("vit", "expected hf/NAME"),
        ("hf/./nowhere", "there is no such folder"),
        ("hf/https://else.where/x", "expected a name such as"),
        ("timm/../x", "expected a name such as|needs the package timm"),
    ],
)
def test_other_names_are_refused(source: str, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        ia.published(source)


@pytest.fixture
def small_timm(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """timm itself, whose models are made small and with random weights, and what it was asked."""
    timm = pytest.importorskip("timm", reason=NO_TIMM, exc_type=ImportError)
    asked: list[tuple[str, dict[str, Any]]] = []
    create = timm.create_model
    sizes: dict[str, dict[str, Any]] = {
        "vit_tiny_patch16_224": {"img_size": 32, "depth": 1, "num_classes": 3},
        "resnet18.a1_in1k": {"num_classes": 3},
    }

    def small(name: str, **given: Any) -> nn.Module:
        asked.append((name, dict(given)))
        torch.manual_seed(0)
        made: nn.Module = create(name, **{**sizes.get(name, {}), **given, "pretrained": False})
        return made

    monkeypatch.setattr(timm, "create_model", small)
    return asked


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "resnet18.a1_in1k"])
def test_a_model_of_timm_goes_through_the_same_door(
    name: str, small_timm: list[tuple[str, dict[str, Any]]]
) -> None:
    network = ia.published(f"timm/{name}")
    assert small_timm == [(name, {"pretrained": True})]
    assert not network.training
    module = ia.Module.of(network, rewarded="b", catalogue="abc", shape=(3, 32, 32))
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(logits_of(module.to_module(), x), network(x))


@pytest.mark.filterwarnings("ignore::intarsia.modules.health.HealthWarning")
def test_modules_are_trained_from_a_model_of_timm_by_name(
    small_timm: list[tuple[str, dict[str, Any]]],
) -> None:
    source = "timm/vit_tiny_patch16_224"
    draws = torch.Generator().manual_seed(2)
    splits = [
        Split(torch.randn(rows, 3, 32, 32, generator=draws), torch.arange(rows) % 3)
        for rows in (24, 12, 12)
    ]
    data = Data.build("pictures", ("a", "b", "c"), *splits, "none")
    bank = ia.train(data, base=source, **SETTINGS)
    assert bank[0].base is not None
    assert bank[0].base.name == source
    own = ia.published(source).state_dict()
    assert all(torch.equal(tensor, own[n]) for n, tensor in bank[0].base.state.items() if n in own)
    merged = ia.compose(bank, "task_arithmetic")
    assert torch.isfinite(logits_of(merged, data.test.x)).all()


def test_a_name_that_timm_does_not_know_is_an_error_of_ours() -> None:
    pytest.importorskip("timm", reason=NO_TIMM, exc_type=ImportError)
    with pytest.raises(ModelError, match="timm cannot make 'no_such_model_at_all'"):
        ia.published("timm/no_such_model_at_all")
