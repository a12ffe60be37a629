"""An encoder's identity: what it is known by, what it reads, and what is refused."""

import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from intarsia.encoders import ENCODERS, Encoder
from intarsia.encoders.encoder import read_spec
from intarsia.errors import DataError, ModelError, RecipeError
from tiny_encoder import FEATURES, SHAPE, TinyEncoder, pictures


def flat(x: Tensor) -> Tensor:
    return x.flatten(1)[:, :4] / 255


def test_a_network_is_known_by_its_weights_and_what_it_computes() -> None:
    encoder = Encoder.of(TinyEncoder(), SHAPE)
    assert (encoder.name, encoder.features, encoder.shape) == ("TinyEncoder", FEATURES, SHAPE)
    assert encoder.identity == Encoder.of(TinyEncoder(), SHAPE).identity
    assert encoder.same_as(Encoder.of(TinyEncoder(), SHAPE))
    assert not encoder.same_as(Encoder.of(TinyEncoder(seed=1), SHAPE))
    other = type("TinyEncoder", (TinyEncoder,), {"forward": lambda self, x: flat(x)})
    assert not encoder.same_as(Encoder.of(other(), SHAPE))
    assert encoder.identity != Encoder.of(other(), SHAPE).identity
    assert not encoder.same_as(None)


def test_training_a_network_further_changes_no_encoder() -> None:
    network = TinyEncoder()
    encoder = Encoder.of(network, SHAPE)
    x = torch.tensor(pictures(4)[0])
    before = encoder(x)
    with torch.no_grad():
        network.weight.add_(1)
    assert torch.equal(encoder(x), before)


def test_a_network_in_training_mode_answers_without_dropout_and_stays_in_it() -> None:
    network = TinyEncoder().train()
    x = torch.tensor(pictures(4)[0])
    features = Encoder.of(network, SHAPE)(x)
    assert network.training
    assert torch.equal(features, network.eval()(x.float()).detach())


def test_a_function_is_known_by_its_name_and_its_answers() -> None:
    encoder = Encoder.of(flat, SHAPE)
    assert (encoder.name, encoder.weights, encoder.features) == ("flat", "", 4)
    changed: Any = lambda x: flat(x) * 2  # noqa: E731
    changed.__qualname__ = "flat"
    assert not encoder.same_as(Encoder.of(changed, SHAPE))
    in_numpy = Encoder.of(lambda x: x.flatten(1).numpy()[:, :2], SHAPE)
    assert in_numpy(torch.ones(3, *SHAPE)).tolist() == [[1, 1]] * 3


def test_batches_do_not_change_the_features(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder.of(TinyEncoder(), SHAPE)
    x = torch.tensor(pictures(23)[0])
    whole = encoder(x)
    monkeypatch.setattr("intarsia.encoders.encoder.MOST_ROWS", 5)
    torch.testing.assert_close(encoder(x), whole)
    assert encoder(x[:0]).shape == (0, FEATURES)


def test_an_encoder_is_one_function() -> None:
    @ENCODERS.register("brightness")
    def brightness(bands: int = 3, white: float = 255.0) -> nn.Module:
        """The mean of each of so many bands of a picture."""

        class Brightness(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return nn.functional.adaptive_avg_pool2d(x, (bands, 1)).mean(1).flatten(1) / white

        return Brightness()

    encoder = Encoder.of("brightness(2)", SHAPE)
    assert (encoder.text, encoder.features, encoder.resizes) == ("brightness(bands=2)", 2, True)
    assert encoder.spec is not None
    assert dict(encoder.spec.arguments) == {"bands": 2, "white": 255.0}
    assert encoder.same_as(Encoder.of({"name": "brightness", "bands": 2}, (1, 9, 9)))
    assert not encoder.same_as(Encoder.of("brightness", SHAPE))
    with pytest.raises(RecipeError, match="did you mean 'bands'"):
        Encoder.of("brightness(band=2)", SHAPE)
    with pytest.raises(DataError, match="reads pictures"):
        Encoder.of("brightness", (12,))


def test_other_weights_under_the_same_name_are_refused_by_name() -> None:
    ENCODERS.register("mine", features=FEATURES)(TinyEncoder)
    encoder = Encoder.of("mine(seed=0)", SHAPE)
    assert encoder(torch.zeros(1, *SHAPE)).shape == (1, FEATURES)
    ENCODERS.register("mine", features=FEATURES)(lambda seed: TinyEncoder(seed + 1))
    with pytest.raises(ModelError, match=r"encoder mine.* has other weights here"):
        encoder(torch.zeros(1, *SHAPE))


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (lambda x: x, "N x features"),
        (lambda x: [1], "gives list"),
        (lambda x: x.flatten(1) / 0, "NaN or infinite"),
        (lambda x: torch.rand(len(x), 3), "other features each time"),
        (nn.Linear(3, 2), "Linear fails on 2 inputs of shape"),
        (3, "expected the name of an encoder"),
        ("lite", "unknown encoder 'lite'"),
        ("custom Tiny", "a network or function of your own"),
    ],
)
def test_what_cannot_encode_is_refused(what: Any, message: str) -> None:
    with pytest.raises((ModelError, DataError, RecipeError), match=message):
        Encoder.of(what, SHAPE)


def test_a_network_of_ones_own_takes_one_shape() -> None:
    encoder = Encoder.of(TinyEncoder(), SHAPE)
    assert encoder.reads(SHAPE)
    assert not encoder.reads((3, 8, 8))
    with pytest.raises(DataError, match="takes N x 3 x 6 x 5"):
        encoder.for_shape((3, 8, 8))


def test_a_missing_network_is_asked_for_and_another_is_refused() -> None:
    encoder = replace(Encoder.of(TinyEncoder(), SHAPE), network=None)
    with pytest.raises(ModelError, match=r"'TinyEncoder'.*encoder=network"):
        encoder.found()
    with pytest.raises(ModelError, match="its weights have the digest"):
        encoder.with_network(TinyEncoder(seed=1))
    assert encoder.with_network(TinyEncoder()).network is not None


class Resnet(nn.Module):
    """What timm and transformers would give: normalised pictures in, means of colours out."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, pixel_values: Tensor) -> Any:
        assert pixel_values.shape[1:] == (3, 32, 32)
        return self.scale * pixel_values.mean((2, 3))


def test_timm_models_are_made_with_their_own_normalisation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, Any] = {}
    package, settings = ModuleType("timm"), ModuleType("timm.data")

    def create_model(name: str, **given: Any) -> nn.Module:
        asked.update(given, name=name)
        return Resnet()

    package.create_model = create_model  # type: ignore[attr-defined]
    settings.resolve_model_data_config = lambda model: {  # type: ignore[attr-defined]
        "input_size": (3, 32, 32), "mean": (0.5, 0.5, 0.0), "std": (0.5, 1.0, 2.0),
    }  # fmt: skip
    monkeypatch.setitem(sys.modules, "timm", package)
    monkeypatch.setitem(sys.modules, "timm.data", settings)
    encoder = Encoder.of("timm/resnet50.a1_in1k", (1, 8, 8))
    assert asked == {"name": "resnet50.a1_in1k", "pretrained": True, "num_classes": 0}
    assert encoder.text == "timm/resnet50.a1_in1k"
    grey = torch.full((2, 1, 8, 8), 255, dtype=torch.uint8)
    torch.testing.assert_close(encoder(grey), torch.tensor([[2.0, 1.0, 1.0]] * 2))


def test_models_of_hugging_face_are_pooled_and_run_no_code_of_a_repository(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, Any] = {}

    class Vit(Resnet):
        def forward(self, pixel_values: Tensor) -> Any:
            means = super().forward(pixel_values)
            return SimpleNamespace(last_hidden_state=means[:, None, :].expand(-1, 4, -1))

    def from_pretrained(name: str, **given: Any) -> nn.Module:
        asked.update(given, name=name)
        return Vit()

    processor = SimpleNamespace(
        size={"height": 32, "width": 32}, image_mean=[0.0] * 3, image_std=[1.0] * 3
    )
    package = ModuleType("transformers")
    package.AutoModel = SimpleNamespace(from_pretrained=from_pretrained)  # type: ignore[attr-defined]
    package.AutoImageProcessor = SimpleNamespace(  # type: ignore[attr-defined]
        from_pretrained=lambda name: processor
    )
    monkeypatch.setitem(sys.modules, "transformers", package)
    encoder = Encoder.of("hf/google/vit", (3, 8, 8))
    assert asked == {"name": "google/vit", "use_safetensors": True}
    white = torch.full((1, 3, 8, 8), 255.0)
    torch.testing.assert_close(encoder(white), torch.tensor([[2.0, 2.0, 2.0]]))


@pytest.mark.parametrize(
    ("name", "advice"),
    [("timm/resnet50", "pip install timm"), ("hf/google/missing", "pip install transformers")],
)
def test_a_missing_package_is_named(
    name: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("timm", "transformers"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModelError, match=rf"{name} needs the package .*{advice}"):
        Encoder.of(name, SHAPE)


@pytest.mark.parametrize("name", ["timm/hf-hub:a/b", "timm/../x", "hf//etc/x", "hf/a/b/c"])
def test_names_of_hubs_are_no_paths_or_addresses(name: str) -> None:
    with pytest.raises(ModelError, match="expected one such as"):
        Encoder.of(name, SHAPE)


def test_a_spec_of_a_hub_is_read_with_settings_too() -> None:
    expected = {"name": "a.b", "size": 64}
    assert read_spec("timm(name='a.b', size=64)").arguments == expected
    assert read_spec("timm/a.b(size=64)").arguments == expected
    assert read_spec("timm/a.b (size=64)").arguments == expected
    assert read_spec("timm/a.b()").arguments == {"name": "a.b"}


def test_grey_pictures_and_colour_of_any_size_are_read() -> None:
    from intarsia.encoders import PictureEncoder

    encoder = PictureEncoder(nn.Flatten(), white=16.0, size=2)
    picture = torch.arange(16.0).reshape(1, 1, 4, 4)
    colours = encoder(picture).reshape(3, 2, 2)
    assert torch.equal(colours[0], colours[1])
    reference = nn.functional.interpolate(picture / 16, (2, 2), mode="bilinear", antialias=True)
    np.testing.assert_allclose(colours[2], reference[0, 0])
