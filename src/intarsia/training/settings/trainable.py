"""Which parts of a network train: all of it, its head, its norms, or layers by name."""

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from intarsia.errors import RecipeError, nearest
from intarsia.pruning import normalisations
from intarsia.training.lora import is_lora
from intarsia.training.settings.recipe import selected


def frozen_names(
    network: nn.Module, trainable: str | Sequence[str] | None, head: Collection[str]
) -> tuple[str, ...]:
    """The parameters that stay as they are; `head` are those of the layer that makes the logits.

    A name is that of a layer or of a parameter, and may be a pattern: `layer4`, `*.bias`.
    """
    wanted = [word for word in selected(trainable) if not is_lora(word)]
    names = [name for name, _ in network.named_parameters()]
    groups = {"all": names, "head": list(head), "norms": list(normalisations(network))}
    layers = {path: layer for path, layer in network.named_modules() if path}
    has_statistics = any(isinstance(layer, _NormBase) for layer in layers.values())
    train: set[str] = set()
    for word in wanted:
        chosen = groups.get(word, [name for name in names if _matches(name, word)])
        by_path = word not in groups and any(_matches(path, word) for path in layers)
        if not chosen and not by_path and not (word == "norms" and has_statistics):
            known = [name for name in (*groups, *layers) if name != word]
            raise RecipeError(
                f"trainable is {word!r}, of which the network has nothing: {nearest(word, known)}"
            )
        train.update(chosen)
    return tuple(name for name in names if name not in train)


def still_layers(
    network: nn.Module, trainable: str | Sequence[str] | None, frozen: Collection[str]
) -> tuple[str, ...]:
    """The normalisations that keep their running statistics and normalise by them.

    Those none of whose parameters train; one without parameters stays unless it is asked for.
    """
    wanted = selected(trainable)
    if "all" in wanted:
        return ()
    still = []
    for path, layer in network.named_modules():
        if not isinstance(layer, _NormBase) or not layer.track_running_stats:
            continue
        own = [f"{path}.{name}" for name, _ in layer.named_parameters()]
        asked = "norms" in wanted or any(_matches(path, word) for word in wanted)
        if all(name in frozen for name in own) and (own or not asked):
            still.append(path)
    return tuple(still)


def _matches(name: str, word: str) -> bool:
    """Whether a layer, or one that it lies in, has this name."""
    return fnmatchcase(name, word) or fnmatchcase(name, f"{word}.*")
