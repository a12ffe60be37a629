"""Encoders from timm, by the names that its models have there; needs the package timm."""

from importlib import import_module

from intarsia.encoders.encoder import ENCODERS, WHITE, PictureEncoder, check_hub_name, check_white
from intarsia.errors import ModelError
from intarsia.models.backbones import check_size
from intarsia.models.custom.published import needed_package


@ENCODERS.register("timm")
def timm(name: str, size: int | None = None, white: float = WHITE) -> PictureEncoder:
    """A model of timm without its last layer; size and normalisation are those it was trained with.

    `timm/resnet50.a1_in1k` is short for timm(name="resnet50.a1_in1k").
    """
    check_hub_name("timm", name)
    package = needed_package("timm", f"the encoder timm/{name}")
    settings = import_module("timm.data")
    try:
        network = package.create_model(name, pretrained=True, num_classes=0)
        trained = settings.resolve_model_data_config(network)
    except Exception as error:  # timm, its hub and the network raise many
        raise ModelError(f"timm cannot make {name!r} with its weights: {error}") from error
    return PictureEncoder(
        network,
        check_white("timm", white),
        check_size("timm", trained["input_size"][-1] if size is None else size),
        tuple(trained["mean"]),
        tuple(trained["std"]),
    )
