"""Networks, and the names of their axes."""

from intarsia.models.backbones import Backbone
from intarsia.models.convolutional import Lenet, Resnet18, Vgg11
from intarsia.models.factory import MODELS, Model, build, initialise, silence
from intarsia.models.mlp import Mlp
from intarsia.models.vit import Vit
from intarsia.models.wiring import Axis, Wiring, infer_wiring, wiring_of

__all__ = [
    "MODELS",
    "Axis",
    "Backbone",
    "Lenet",
    "Mlp",
    "Model",
    "Resnet18",
    "Vgg11",
    "Vit",
    "Wiring",
    "build",
    "infer_wiring",
    "initialise",
    "silence",
    "wiring_of",
]
