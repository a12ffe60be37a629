"""Classifiers that others have published: models of transformers and of timm, by name or folder."""

import re
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from intarsia.errors import ModelError, shortened
from intarsia.models.custom.adapting import collated

HUBS = ("hf", "timm")
"""What stands before the slash of a published network's name."""


def is_published(source: Any) -> bool:
    """Whether a text names a published network: `hf/NAME`, `timm/NAME`."""
    return isinstance(source, str) and source.partition("/")[0] in HUBS and "/" in source


def published(source: str) -> nn.Module:
    """A network with its weights, in evaluation mode, ready for `train(base=)` and `Module.of`.

    `hf/google/vit-base-patch16-224` is a classification model of transformers, of pictures or of
    token ids, which it reads as one tensor of whole numbers, padding included. In place of its name
    goes the folder of one: `hf/./folder`, `hf//data/folder`. `timm/resnet50.a1_in1k` is a model of
    timm, which reads weights of its own list from where it keeps them: as safetensors where there
    are any, but else pickled. transformers' are read from safetensors alone, and code that a
    repository holds is never run. Where there are no weights for the last layer, it is 0.
    """
    if not is_published(source):
        raise ModelError(
            f"the published network is {shortened(source)}: expected hf/NAME, hf/./FOLDER or "
            "timm/NAME"
        )
    hub, _, name = source.partition("/")
    return _of_timm(name) if hub == "timm" else _of_transformers(name)


def needed_package(name: str, wanted: str) -> Any:
    """A package that what is `wanted` needs, or a ModelError that says how to install it."""
    try:
        return import_module(name)
    except ImportError:
        raise ModelError(
            f"{wanted} needs the package {name}: install it with pip install {name}"
        ) from None


def _of_transformers(name: str) -> nn.Module:
    local = name.startswith(("/", "./", "../", "~"))
    if local and not Path(name).expanduser().is_dir():
        raise ModelError(f"hf/{name}: there is no such folder: give one with a config.json")
    where = str(Path(name).expanduser()) if local else _plain("hf", name)
    package = needed_package("transformers", f"hf/{name}")
    never = {"trust_remote_code": False, "local_files_only": local}
    try:
        config = package.AutoConfig.from_pretrained(where, **never)
        kind = _kind(config)
        network, loaded = getattr(package, kind).from_pretrained(
            where, config=config, use_safetensors=True, dtype=torch.float32,
            output_loading_info=True, **never,
        )  # fmt: skip
    except Exception as error:  # transformers, its hub and the network raise many
        raise ModelError(f"transformers cannot load {name!r} as a classifier: {error}") from error
    _silence_new_head(network, loaded["missing_keys"], name)
    if kind == "AutoModelForSequenceClassification":
        collated(network, TokenRows(config.pad_token_id))
    classifier: nn.Module = network.eval()
    return classifier


def _silence_new_head(network: nn.Module, missing: Collection[str], name: str) -> None:
    """A last layer without weights is 0, as that of any base; transformers drew it at random."""
    if not missing:
        return
    path, head = [pair for pair in network.named_modules() if isinstance(pair[1], nn.Linear)][-1]
    elsewhere = set(missing) - {f"{path}.{own}" for own, _ in head.named_parameters()}
    if elsewhere:
        raise ModelError(
            f"{name!r} has no weights for {min(elsewhere)!r}, which transformers would draw at "
            "random: give a classifier that was saved with all of its weights"
        )
    with torch.no_grad():
        for own, parameter in head.named_parameters():
            if f"{path}.{own}" in missing:
                parameter.zero_()


def _of_timm(name: str) -> nn.Module:
    package = needed_package("timm", f"timm/{name}")
    try:
        network: nn.Module = package.create_model(_plain("timm", name), pretrained=True)
    except ModelError:
        raise
    except Exception as error:  # timm, its hub and the network raise many
        raise ModelError(f"timm cannot make {name!r} with its weights: {error}") from error
    return network.eval()


class TokenRows:
    """From rows of token ids to what a model of transformers reads: `collate` for `collated`.

    What equals `padding` is not attended to; with None everything is.
    """

    def __init__(self, padding: int | None) -> None:
        self.padding = padding

    def __call__(self, rows: Tensor) -> dict[str, Tensor]:
        seen = torch.ones_like(rows) if self.padding is None else (rows != self.padding).long()
        return {"input_ids": rows, "attention_mask": seen}


def _kind(config: Any) -> str:
    """Which of transformers' classes makes the classifier that a configuration is of."""
    named = " ".join(getattr(config, "architectures", None) or ())
    pictures = "ForImageClassification" in named
    if not pictures and "ForSequenceClassification" not in named:
        pictures = not hasattr(config, "vocab_size")
    return f"AutoModelFor{'Image' if pictures else 'Sequence'}Classification"


def _plain(hub: str, name: str) -> str:
    if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name):
        raise ModelError(
            f"{hub}/{shortened(name)}: expected a name such as google/vit-base-patch16-224, or "
            "a folder that begins with / or ./"
        )
    return name
