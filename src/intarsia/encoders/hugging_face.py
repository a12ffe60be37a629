"""Encoders from Hugging Face, by the names of their repositories; needs transformers."""

from typing import Any

from torch import Tensor, nn

from intarsia.encoders.encoder import ENCODERS, WHITE, PictureEncoder, check_hub_name, check_white
from intarsia.errors import ModelError
from intarsia.models.backbones import check_size
from intarsia.models.custom.published import needed_package


class Pooled(nn.Module):
    """One row of features of what a model of transformers gives for pictures."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        answer = self.network(pixel_values=pixels)
        pooled = getattr(answer, "pooler_output", None)
        if pooled is not None:
            return pooled.flatten(1)  # of a convolutional one N x C x 1 x 1
        hidden: Tensor = answer.last_hidden_state
        return hidden.mean(1) if hidden.dim() == 3 else hidden.mean((2, 3))


@ENCODERS.register("hf")
def hf(name: str, size: int | None = None, white: float = WHITE) -> PictureEncoder:
    """A model for pictures with safetensors weights; code that a repository holds is never run.

    `hf/google/vit-base-patch16-224` is short for hf(name="google/vit-base-patch16-224").
    """
    check_hub_name("hf", name)
    package = needed_package("transformers", f"the encoder hf/{name}")
    try:
        network = package.AutoModel.from_pretrained(name, use_safetensors=True)
        trained = package.AutoImageProcessor.from_pretrained(name)
    except Exception as error:  # transformers, its hub and the network raise many
        raise ModelError(f"transformers cannot load {name!r}: {error}") from error
    return PictureEncoder(
        Pooled(network),
        check_white("hf", white),
        check_size("hf", _side(trained.size) if size is None else size),
        tuple(trained.image_mean),
        tuple(trained.image_std),
    )


def _side(size: Any) -> Any:
    """Of what a processor calls its size: a number, or a mapping with one of several keys."""
    if isinstance(size, int):
        return size
    return next((size[key] for key in ("height", "shortest_edge") if key in size), None)
