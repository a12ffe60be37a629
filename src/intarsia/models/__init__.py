"""Networks, and the names of their axes."""

from intarsia.models.convolutional import Lenet, Resnet18, Vgg11
from intarsia.models.factory import MODELS, Model, as_model, build, copies_of, initialise, silence
from intarsia.models.mlp import Mlp
from intarsia.models.wiring import Axis, Wiring, infer_wiring, wiring_of

__all__ = [
    "MODELS",
    "Axis",
    "Lenet",
    "Mlp",
    "Model",
    "Resnet18",
    "Vgg11",
    "Wiring",
    "as_model",
    "build",
    "copies_of",
    "infer_wiring",
    "initialise",
    "silence",
    "wiring_of",
]
