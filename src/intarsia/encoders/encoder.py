"""An encoder: what turns raw inputs into features, known by its name, its weights and a probe."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from math import prod
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from intarsia.errors import DataError, ModelError, RecipeError, shortened
from intarsia.files import canonical, digest_of, plain
from intarsia.models.custom.probe import Probe
from intarsia.models.custom.trial import evaluation_mode
from intarsia.specs import Registry, Spec, is_number

ENCODERS = Registry("encoder", weights=None, features=None, resizes=True, tokens=None)
"""Encoders by name; `@ENCODERS.register("mine")` adds a function of settings that gives a network.

The network takes raw inputs as data hold them, N x *shape, and gives N x features. Traits: the
digest of its `weights` and the number of its `features`, where they are known before it is made,
whether it `resizes`: takes pictures of any size, grey or in colour; and for one that reads texts
`tokens`: a function of texts, and of its settings, that gives its raw inputs, whole numbers
N x length.
"""

HUBS = ("timm", "hf")  # encoders whose first setting is a name of theirs, after a slash
CUSTOM = "custom"
TOLERANCE = 1e-3  # of the size of a probe's row, in which float32 may differ between machines
PIXELS = 2**18  # of the pictures in a batch on a CPU, whose caches larger ones do not fit
PIXELS_OF_A_GPU = 2**24
MOST_ROWS = 256  # in a batch
WHITE = 255.0
KEPT = 4  # features of a row that a probe keeps, beside the mean over all


@dataclass(frozen=True, eq=False)
class Encoder:
    """The identity of what turns raw inputs into features; the network itself is found when needed.

    `spec` is its name with all settings, None for a network or function of the user's own, which
    files do not hold. `weights` is the digest of its state, "" for a function. `shape` is that of
    the raw inputs that features were computed from. `probe` has what a custom one gives for fixed
    inputs.
    """

    name: str
    spec: Spec | None
    weights: str
    shape: tuple[int, ...]
    features: int
    probe: Probe | None = None
    network: Callable[..., Any] | None = field(default=None, repr=False)  # a custom one, if here

    @classmethod
    def of(cls, what: "EncoderLike", shape: tuple[int, ...]) -> "Encoder":
        """The encoder that a name, a network or a function is, for raw inputs of a shape."""
        if isinstance(what, Encoder):
            return what.for_shape(shape)
        if isinstance(what, str | Mapping | Spec):
            return _named(read_spec(what), shape)
        if isinstance(what, type):
            raise RecipeError(
                f"features is the class {what.__name__}: give a network that it makes, as in "
                f"features={what.__name__}()"
            )
        if callable(what):
            return _custom(what, shape)
        raise RecipeError(
            f"features is {shortened(what)}: expected the name of an encoder, a torch.nn.Module, "
            "or a function of a batch of inputs"
        )

    @property
    def resizes(self) -> bool:
        """Whether it takes pictures of other sizes than `shape`, grey or in colour."""
        return self.spec is not None and bool(ENCODERS[self.spec.name].resizes)

    @property
    def reads_texts(self) -> bool:
        """Whether it turns texts into its raw inputs."""
        return self.spec is not None and ENCODERS[self.spec.name].tokens is not None

    def tokens(self, texts: Any) -> Tensor:
        """A list or array of texts as raw inputs, N x length."""
        if self.spec is None or not self.reads_texts:
            raise DataError(f"the inputs are texts, and the encoder {self} reads {self.expected}")
        return torch.from_numpy(tokens_of(self.spec, texts))

    @property
    def text(self) -> str:
        """It as people write it, with the settings that are not the defaults."""
        if self.spec is None:
            return f"{CUSTOM} {self.name}"
        defaults = {k: p.default for k, p in ENCODERS.parameters(self.spec.name).items()}
        given = {k: v for k, v in self.spec.arguments.items() if v != defaults[k]}
        if self.spec.name in HUBS and set(given) == {"name"}:
            return f"{self.spec.name}/{given['name']}"
        return str(Spec(self.spec.name, given))

    @property
    def expected(self) -> str:
        """The shapes of raw inputs that it reads, in words."""
        shape = " x ".join(map(str, self.shape))
        if self.reads_texts:
            return f"a list of texts, or their tokens as N x {shape}"
        return (
            f"pictures as N x 1 or 3 x height x width, such as N x {shape}"
            if self.resizes
            else f"N x {shape}"
        )

    def __str__(self) -> str:
        return self.text

    @cached_property
    def identity(self) -> str:
        """A digest, the same for encoders that give the same features of the same inputs."""
        parts: list[Any] = [_plain_spec(self.spec), self.weights, self.features]
        if not self.resizes:
            parts.append(list(self.shape))
        if self.probe is not None:  # three digits, which hardly any machine rounds otherwise
            parts += [self.name, [f"{value:.3g}" for value in self.probe]]
        return digest_of(parts)

    def same_as(self, other: "Encoder | None") -> bool:
        """Whether both give the same features of the same inputs, as far as their identity says."""
        if other is None or self.spec is None or other.spec is None:
            return other is not None and not self._difference(other)
        return self.identity == other.identity

    def for_shape(self, shape: tuple[int, ...]) -> "Encoder":
        """This encoder for raw inputs of another shape, where it takes them."""
        if shape == self.shape:
            return self
        if not self.resizes or len(shape) != 3 or shape[0] not in (1, 3):
            raise DataError(f"the inputs have shape {shape}: {self} takes {self.expected}")
        return replace(self, shape=shape)

    def with_network(self, what: "EncoderLike") -> "Encoder":
        """This encoder with the network or function that it is, or our error if it is another."""
        given = Encoder.of(what, self.shape)
        if reason := self._difference(given):
            raise ModelError(
                f"the encoder given is not {self.text!r}, whose features its modules were trained "
                f"on: {reason}; give the encoder of the training, unchanged"
            )
        return replace(self, network=given.network)

    def reads(self, shape: tuple[int, ...]) -> bool:
        """Whether it takes raw inputs of this shape."""
        return shape == self.shape or (self.resizes and len(shape) == 3 and shape[0] in (1, 3))

    def __call__(self, x: Tensor, device: torch.device | str = "cpu") -> Tensor:
        """The features of raw inputs, N x features in float32 on the device, batch by batch.

        A network computes them there; a function gets its inputs on the CPU, where it was tried.
        """
        network, place = self.found(), torch.device(device)
        where = place if isinstance(network, nn.Module) else torch.device("cpu")
        if isinstance(network, nn.Module):
            network.to(place)
        rows = _rows_at_once(network, tuple(x.shape[1:]), where)
        with _exact(where):
            pieces = [
                self._checked(_answer(network, x[start : start + rows].to(where))).to(place)
                for start in range(0, max(len(x), 1), rows)  # an empty input goes through once
            ]
        return torch.cat(pieces)

    def found(self) -> Callable[..., Any]:
        """The network or function, checked; an error that says what to do where it is missing."""
        if self.network is not None:
            return self.network
        if self.spec is None:
            raise ModelError(
                f"its encoder is {self.name!r}, a network or function of your own, which files do "
                "not hold: give it, as in Module.load(path, encoder=network), or "
                "Composition.load and Bank.load with encoder="
            )
        network, weights = _network_of(self.spec)
        if weights != self.weights:
            raise ModelError(
                f"the encoder {self} has other weights here ({weights[:12]}) than those whose "
                f"features the modules were trained on ({self.weights[:12]}): install the version "
                "of its package that they were trained with"
            )
        return network

    def to_json(self) -> dict[str, Any]:
        """Plain values, as the header of a file has them."""
        value: dict[str, Any] = {
            "name": self.name,
            "spec": _plain_spec(self.spec),
            "weights": self.weights,
            "shape": list(self.shape),
            "features": self.features,
        }
        return value | ({"probe": list(self.probe)} if self.probe is not None else {})

    def __deepcopy__(self, memo: dict[int, Any]) -> "Encoder":
        return self  # nothing changes it

    def _difference(self, other: "Encoder") -> str:
        """What another encoder has otherwise; empty if nothing."""
        mine, others = (canonical(_plain_spec(one.spec)) for one in (self, other))
        if mine != others:
            return f"it is {other.text!r}"
        if other.weights != self.weights:
            return f"its weights have the digest {other.weights[:12]}, not {self.weights[:12]}"
        if other.features != self.features:
            return f"it gives {other.features} features, not {self.features}"
        if self.spec is None and (self.name, self.shape) != (other.name, other.shape):
            return f"it is {other.name!r} for inputs of shape {other.shape}"
        if self.probe is not None and not _close(self.probe, other.probe):
            return "it gives other features for the same inputs"
        return ""

    def _checked(self, answer: Any) -> Tensor:
        features = _as_features(answer, self.name)
        if features.shape[1] != self.features:
            raise ModelError(
                f"the encoder {self} gives {features.shape[1]} features, its identity says "
                f"{self.features}"
            )
        return features


EncoderLike: TypeAlias = str | Mapping[str, Any] | Spec | Encoder | Callable[..., Any]
"""A name with its settings, an Encoder, a network, or any function of a batch of raw inputs."""


class PictureEncoder(nn.Module):
    """A network with what comes before it: pixels from 0 to `white`, grey or colour, of any size.

    With `size` pictures are brought to that many pixels square, with `mean` and `deviation` their
    three colours are normalised; a network that does either itself needs no such setting.
    """

    def __init__(
        self,
        network: nn.Module,
        white: float = WHITE,
        size: int | None = None,
        mean: tuple[float, ...] = (),
        deviation: tuple[float, ...] = (),
    ) -> None:
        super().__init__()
        self.network, self.white, self.size = network, white, size
        self.mean, self.deviation = mean, deviation

    @property
    def side(self) -> int | None:
        """Pixels of a side of what the network sees, where it or this brings pictures there."""
        return self.size or getattr(self.network, "size", None)

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(torch.float32) / self.white
        if self.size is not None:
            square = (self.size, self.size)
            x = F.interpolate(x, square, mode="bilinear", antialias=True, align_corners=False)
        x = x.expand(-1, 3, -1, -1)  # grey is all three colours
        if self.mean:
            pairs = zip(self.mean, self.deviation, strict=True)
            x = torch.cat([(x[:, i : i + 1] - m) / d for i, (m, d) in enumerate(pairs)], dim=1)
        return self.network(x)


def read_spec(text: str | Mapping[str, Any] | Spec) -> Spec:
    """A name and its settings; `timm/NAME(white=1)` is short for timm(name=NAME, white=1)."""
    if isinstance(text, str):
        hub, slash, rest = text.strip().partition("/")
        if slash and hub in HUBS:
            name, opened, settings = rest.partition("(")
            if opened:
                return ENCODERS.spec(f"{hub}(name={name.strip()!r}, {settings}")
            return ENCODERS.spec(Spec(hub, {"name": name}))
        if is_custom(text):
            raise RecipeError(
                f"features is {shortened(text)}, a network or function of your own, which is not "
                "known by name: give it, as in load_data(..., features=network)"
            )
    return ENCODERS.spec(text)


def check_pictures(spec: Spec, shape: tuple[int, ...]) -> None:
    """Whether inputs of this shape are pictures, for an encoder that reads these."""
    if ENCODERS[spec.name].resizes and (len(shape) != 3 or shape[0] not in (1, 3)):
        raise DataError(
            f"the encoder {spec.name} reads pictures, grey or in colour: the inputs have shape "
            f"{shape}, expected 1 or 3 x height x width"
        )


def is_custom(text: Any) -> bool:
    """Whether an option of data stands for a network or function of the user's own."""
    return isinstance(text, str) and text.partition(" ")[0] == CUSTOM


def check_hub_name(hub: str, name: Any) -> None:
    """A plain name: no path of this machine, and no address of yet another hub."""
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name):
        raise ModelError(
            f"{hub}: the name is {shortened(name)}: expected one such as resnet50.a1_in1k or "
            "google/vit-base-patch16-224"
        )


def is_texts(x: Any) -> bool:
    """Whether inputs are texts: a list or an array of strings."""
    if isinstance(x, np.ndarray):
        return x.ndim == 1 and len(x) > 0 and all(isinstance(value, str) for value in x.tolist())
    return isinstance(x, list | tuple) and len(x) > 0 and all(isinstance(v, str) for v in x)


def reads_texts(what: Any) -> bool:
    """Whether what people give as an encoder is the name of one that reads texts."""
    if isinstance(what, Encoder):
        return what.reads_texts
    if not isinstance(what, str | Mapping | Spec):
        return False
    return ENCODERS[read_spec(what).name].tokens is not None


def tokens_of(what: "EncoderLike", texts: Sequence[str]) -> np.ndarray:
    """The tokens of texts, for an encoder that reads these; N x length."""
    spec = what.spec if isinstance(what, Encoder) else read_spec(what)  # type: ignore[arg-type]
    assert spec is not None
    tokens: np.ndarray = ENCODERS[spec.name].tokens(list(texts), **ENCODERS.settings(spec))
    return tokens


def check_white(name: str, white: Any) -> float:
    """The value of a white pixel, or our error."""
    if not is_number(white) or not 0 < white <= 2**16:
        raise ModelError(
            f"{name}: white is {shortened(white)}: expected the value of a white pixel"
        )
    return float(white)


def _named(spec: Spec, shape: tuple[int, ...]) -> Encoder:
    entry = ENCODERS[spec.name]
    full = Spec(spec.name, plain(ENCODERS.settings(spec), spec.name))
    check_pictures(spec, shape)
    weights, features = entry.weights, entry.features
    if weights is None or features is None:
        network, weights = _network_of(full)
        inputs = _fixed_inputs(shape)
        if entry.tokens is not None:  # not any number is a token
            inputs = torch.from_numpy(tokens_of(full, ["a text"]))
        features = len(_as_features(_answer(network, inputs), spec.name)[0])
    return Encoder(spec.name, full, weights, shape, features)


def _custom(what: Callable[..., Any], shape: tuple[int, ...]) -> Encoder:
    network = isinstance(what, nn.Module)
    name = type(what).__name__ if network else getattr(what, "__qualname__", type(what).__name__)
    if isinstance(what, nn.Module):  # a copy, so that training it further changes no features
        what = deepcopy(what).eval().requires_grad_(False)
    inputs = _fixed_inputs(shape)
    try:
        first, second = (_as_features(_answer(what, inputs), name).cpu() for _ in range(2))
    except (ModelError, DataError):
        raise
    except Exception as error:  # it is the user's code that fails
        raise ModelError(
            f"the encoder {name} fails on {len(inputs)} inputs of shape {shape}, in float32 as "
            f"data hold them: {type(error).__name__}: {error}"
        ) from error
    if not torch.equal(first, second):
        raise ModelError(f"the encoder {name} gives other features each time for the same inputs")
    weights = digest_of("encoder", _state(what)) if network else ""
    return Encoder(name, None, weights, shape, first.shape[1], _probe(first), what)


def _network_of(spec: Spec) -> tuple[nn.Module, str]:
    """The network of a spec, and the digest of its weights; the last few are remembered."""
    return _made(canonical(_plain_spec(spec)), ENCODERS.entry(spec))


@lru_cache(maxsize=2)
def _made(text: str, entry: Callable[..., nn.Module]) -> tuple[nn.Module, str]:
    network = entry(**json.loads(text)["arguments"])
    # Convolutions of pictures are about twice as fast with the channels last.
    network.eval().requires_grad_(False)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network, digest_of("encoder", _state(network))


def _state(network: Any) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in network.state_dict().items()}


def _answer(network: Callable[..., Any], x: Tensor) -> Any:
    """What it gives for a batch; whole numbers of 64 bits, as tokens are, stay what they are."""
    rows = x if x.dtype == torch.int64 else x.to(torch.float32)
    with torch.no_grad():
        if not isinstance(network, nn.Module):
            return network(rows)
        with evaluation_mode(network):
            return network(rows.to(_device(network)))


def _rows_at_once(network: Any, shape: tuple[int, ...], device: torch.device) -> int:
    """So many that the pictures of a batch have a bounded number of pixels."""
    side = network.side if isinstance(network, PictureEncoder) else None
    pixels = side * side if isinstance(side, int) else prod(shape[1:] or shape)
    most = PIXELS_OF_A_GPU if device.type == "cuda" else PIXELS
    return max(1, min(MOST_ROWS, most // max(1, pixels)))


def _exact(device: torch.device) -> AbstractContextManager[Any]:
    """Convolutions on a GPU in whole float32, so that features are near those of a CPU."""
    if device.type != "cuda":
        return nullcontext()
    return torch.backends.cudnn.flags(
        enabled=True, benchmark=False, deterministic=True, allow_tf32=False
    )


def _device(network: nn.Module) -> torch.device:
    return next(iter([*network.parameters(), *network.buffers()]), torch.zeros(())).device


def _as_features(answer: Any, name: str) -> Tensor:
    """N x features in float32, or our error."""
    features = torch.from_numpy(answer) if isinstance(answer, np.ndarray) else answer
    if not isinstance(features, Tensor) or features.dim() != 2 or not features.shape[1]:
        seen = tuple(features.shape) if isinstance(features, Tensor) else type(answer).__name__
        raise ModelError(
            f"the encoder {name} gives {seen}: expected a tensor of N x features; pool or flatten "
            "what it gives, in a module or function of your own around it"
        )
    features = features.detach().to(torch.float32)
    if not bool(torch.isfinite(features).all()):
        raise DataError(f"the encoder {name} gives features that are NaN or infinite")
    return features


def _fixed_inputs(shape: tuple[int, ...]) -> Tensor:
    """Two rows of whole numbers from 0 to 255 in float32, the same on every machine."""
    count = torch.arange(2 * prod(shape))
    return ((count * count * 31 + count * 17) % 256).to(torch.float32).reshape(2, *shape)


def _probe(features: Tensor) -> Probe:
    """The first features of each row and the mean over all, of six digits."""
    kept = torch.cat([features[:, :KEPT], features.mean(1, keepdim=True)], dim=1).double()
    return tuple(float(f"{value:.6g}") for value in kept.flatten().tolist())


def _close(one: Probe, other: Probe | None) -> bool:
    if other is None or len(one) != len(other) or len(one) % 2:
        return False
    first, second = (torch.tensor(p, dtype=torch.float64).reshape(2, -1) for p in (one, other))
    size = first.abs().amax(1).clamp_min(torch.finfo(torch.float64).tiny)
    return bool(((first - second).abs().amax(1) / size <= TOLERANCE).all())


def _plain_spec(spec: Spec | None) -> dict[str, Any] | None:
    return None if spec is None else {"name": spec.name, "arguments": dict(spec.arguments)}
