"""LoRA: what trains is a product of two thin matrices, added to a weight that stays."""

import copy
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from intarsia.errors import RecipeError, nearest, shortened
from intarsia.files import stream
from intarsia.modules.bases.low_rank import LowRank
from intarsia.specs import Registry, is_number

CHANGES = Registry("trainable")
"""Forms that a change of a base may take besides layers as a whole, by name."""

HIGHEST = 2**16  # of ranks
Values = dict[str, Tensor]


@dataclass(frozen=True)
class LoraSettings:
    """A rank, what the product is multiplied by, and the layers, where these are named."""

    rank: int
    scale: float
    layers: tuple[str, ...] | None


@CHANGES.register("lora")
def lora(
    rank: int = 8,
    alpha: float | None = None,
    layers: str | Sequence[str] | None = None,
    rslora: bool = False,
) -> LoraSettings:
    """Changes of linear and convolution layers by rank-`rank` products, alpha / rank times each.

    Without `alpha` the product counts once; with `rslora` it is divided by the root of the rank
    (Hu et al., arXiv 2106.09685; Kalajdzievski, arXiv 2312.03732). `layers` are names or patterns;
    without them all such layers change but the one that makes the logits and those that train as
    a whole.
    """
    if type(rank) is not int or not 1 <= rank <= HIGHEST:
        raise RecipeError(
            f"lora: rank is {shortened(rank)}: expected a whole number from 1 to {HIGHEST:,}"
        )
    if alpha is not None and (not is_number(alpha) or alpha <= 0):
        raise RecipeError(f"lora: alpha is {shortened(alpha)}: expected a number above 0")
    if not isinstance(rslora, bool):
        raise RecipeError(f"lora: rslora is {shortened(rslora)}: expected true or false")
    given: Any = (layers,) if isinstance(layers, str) else layers
    is_list = isinstance(given, list | tuple) and len(given) > 0
    if layers is not None and not (is_list and all(isinstance(n, str) and n for n in given)):
        raise RecipeError(f"lora: layers is {shortened(layers)}: expected names of layers")
    names = None if layers is None else tuple(given)
    root = math.sqrt(rank) if rslora else rank
    return LoraSettings(rank, 1.0 if alpha is None else alpha / root, names)


def is_lora(word: str) -> bool:
    """Whether a word of `trainable` is such a change, and not the name of a layer."""
    return word.partition("(")[0].strip() in CHANGES


def lora_of(words: Sequence[str]) -> LoraSettings | None:
    """The low-rank change that is asked for, if one is."""
    asked = [word for word in words if is_lora(word)]
    if len(asked) > 1 or (asked and "all" in words):
        raise RecipeError(
            f"trainable is {shortened(', '.join(words))}: expected one lora(...), and beside it "
            "what trains as a whole, as in 'lora(8), head'"
        )
    if not asked:
        return None
    settings: LoraSettings = CHANGES.call(CHANGES.spec(asked[0]))
    return settings


def low_rank_names(
    network: nn.Module, settings: LoraSettings, frozen: Collection[str], head: Collection[str]
) -> tuple[str, ...]:
    """The weights that change by a low rank, among those that do not train as a whole."""
    names = dict(network.named_parameters())
    fit = {
        f"{path}.weight" if path else "weight": path
        for path, layer in network.named_modules()
        if isinstance(layer, nn.Linear | _ConvNd) and not isinstance(layer, _ConvTransposeNd)
    }
    fit = {name: path for name, path in fit.items() if name in names}
    if settings.layers is None:
        chosen = [name for name in fit if name in frozen and name not in head]
    else:
        for word in settings.layers:
            if not any(_matches(path, word) for path in fit.values()):
                raise RecipeError(
                    f"lora: layers has {shortened(word)}, and no linear or convolution layer of "
                    f"the network is that: {nearest(word, list(fit.values()))}"
                )
        chosen = [n for n, path in fit.items() if any(_matches(path, w) for w in settings.layers)]
        if whole := [name for name in chosen if name not in frozen]:
            raise RecipeError(
                f"lora: {whole[0]!r} is to train as a whole and by a low rank: leave one out"
            )
    if not chosen:
        raise RecipeError("lora: the network has no linear or convolution layer left to change")
    for name in chosen:
        rows, columns = _sizes(names[name])
        if settings.rank > min(rows, columns):
            raise RecipeError(
                f"lora: rank is {settings.rank}, and {name!r} ({rows} x {columns}) has no more "
                f"than {min(rows, columns)}: take a lower rank, or name the layers that change"
            )
        if names[name].dtype != torch.float32:
            raise RecipeError(f"lora: {name!r} is {names[name].dtype}: expected float32")
    return tuple(chosen)


class LowRankNetwork(nn.Module):
    """A network whose frozen parameters are buffers, and some of them change by products.

    Its tensors are those of the network, after `network.`, and `up.0`, `down.0`, ... for `names`.
    """

    def __init__(
        self, network: nn.Module, frozen: Collection[str], names: Sequence[str], rank: int,
        scale: float,
    ) -> None:  # fmt: skip
        super().__init__()
        self.network = copy.deepcopy(network)
        self.names, self.scale = tuple(names), scale
        weights = dict(self.network.named_parameters())
        sizes = [_sizes(weights[name]) for name in self.names]
        self.up = nn.ParameterList(torch.zeros(rows, rank) for rows, _ in sizes)
        self.down = nn.ParameterList(torch.zeros(rank, columns) for _, columns in sizes)
        for name in frozen:
            path, _, own = name.rpartition(".")
            layer = self.network.get_submodule(path)
            tensor = layer._parameters.pop(own)
            layer.register_buffer(own, None if tensor is None else tensor.detach())

    def forward(self, *inputs: Any) -> Any:
        return functional_call(self.network, self._changed(), inputs)

    def _changed(self) -> Values:
        changed = {}
        for name, up, down in zip(self.names, self.up, self.down, strict=True):
            path, _, own = name.rpartition(".")
            weight = getattr(self.network.get_submodule(path), own)
            with torch.autocast(weight.device.type, enabled=False):  # weights stay float32
                changed[name] = weight + (self.scale * (up @ down)).reshape(weight.shape)
        return changed

    def start(self, base: Mapping[str, Tensor], seed: int) -> Values:
        """The state that training begins with: that of the base, since every `up` is 0."""
        state = {f"network.{name}": tensor for name, tensor in base.items()}
        for place, (name, down) in enumerate(zip(self.names, self.down, strict=True)):
            draw = torch.Generator().manual_seed(stream("lora", seed, name))
            bound = 1 / math.sqrt(down.shape[1])
            state[f"up.{place}"] = torch.zeros(self.up[place].shape)
            state[f"down.{place}"] = (2 * torch.rand(down.shape, generator=draw) - 1) * bound
        return state

    def parts(self, state: Mapping[str, Tensor]) -> tuple[Values, dict[str, LowRank]]:
        """The network's own tensors but those that change by products, and these."""
        own = {n.removeprefix("network."): t for n, t in state.items() if n.startswith("network.")}
        changes = {
            name: LowRank(state[f"up.{place}"], state[f"down.{place}"], self.scale)
            for place, name in enumerate(self.names)
        }
        return {name: t for name, t in own.items() if name not in changes}, changes


def _sizes(weight: Tensor) -> tuple[int, int]:
    return int(weight.shape[0]), math.prod(weight.shape[1:])


def _matches(path: str, word: str) -> bool:
    """Whether a layer, or one that it lies in, has this name."""
    return fnmatchcase(path, word) or fnmatchcase(path, f"{word}.*")
