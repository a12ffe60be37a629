"""Networks, and the names of their axes."""

from intarsia.models.backbones import Backbone
from intarsia.models.convolutional import Lenet, Resnet18, Vgg11
from intarsia.models.custom.adapting import collated, packed
from intarsia.models.custom.published import published
from intarsia.models.factory import MODELS, Model, as_model, build, copies_of, initialise, silence
from intarsia.models.fastnet import Fastnet
from intarsia.models.mlp import Mlp
from intarsia.models.vit import Vit
from intarsia.models.wiring import Axis, Wiring, infer_wiring, wiring_of

__all__ = [
    "MODELS",
    "Axis",
    "Backbone",
    "Fastnet",
    "Lenet",
    "Mlp",
    "Model",
    "Resnet18",
    "Vgg11",
    "Vit",
    "Wiring",
    "as_model",
    "build",
    "collated",
    "copies_of",
    "infer_wiring",
    "initialise",
    "packed",
    "published",
    "silence",
    "wiring_of",
]
