"""Modules and compositions for use without intarsia: tensors, ONNX, or a plain network."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, fx, nn

from intarsia.composition import Composition
from intarsia.errors import FileError, ModelError, RecipeError, nearest
from intarsia.files import canonical, plain, write_whole
from intarsia.modules import Classifier, Module
from intarsia.modules.classifier import divide_other

Exportable = Module | Composition | Classifier
FORMATS = ("safetensors", "onnx")
INPUTS = {"float32": torch.float32, "uint8": torch.uint8}


def export(
    artifact: Exportable, path: str | Path, format: str | None = None, inputs: str = "float32"
) -> str:
    """Write a file that others read: `safetensors` (tensors alone) or `onnx` (the computation).

    The format follows from the name's ending where it is not given. ONNX needs the extra `onnx`;
    its file takes raw inputs, N x *shape of the type `inputs` (float32 or uint8) and any N, and
    gives logits. The catalogue, scaling and temperature are in the metadata of either. Returns
    the format.
    """
    kind = _format(Path(path), format)
    model = _model(artifact)
    about = canonical(_facts(artifact, model))
    if kind == "onnx":
        content = _onnx(model, about, _example(model, inputs))
    else:
        content = safetensors.torch.save(_state(model), {"network": about})
    write_whole(path, content)
    return kind


def export_program(artifact: Exportable, inputs: str = "float32") -> torch.export.ExportedProgram:
    """The computation from raw inputs to logits as torch.export has it, for any number of rows.

    It has no file format here: the archives of torch.export.save hold pickled parts, which their
    reader would have to trust.
    """
    model = _model(artifact)
    with _tracing("export_program"), _quiet():
        return torch.export.export(model, (_example(model, inputs),), dynamic_shapes=_any_rows())


def to_network(artifact: Exportable) -> nn.Module:
    """A network of torch's own layers from raw inputs, N x *shape, to logits; no class of ours.

    The layers keep their names. It is made for use, not for training: dropout is off for good.
    """
    root = _traceable(_model(artifact))
    with _tracing("to_network"):
        return fx.GraphModule(root, fx.Tracer().trace(root), "Network").eval()


class _Reading(nn.Module):
    """A classifier without the input checks, which a tracer cannot follow."""

    shift: Tensor
    scale: Tensor

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.network = model.network
        self.scaled = model.scaling.kind != "none"
        if self.scaled:
            self.register_buffer("shift", model.shift)
            self.register_buffer("scale", model.scale)
        self.dtype = torch.int64 if model.reads_integers else torch.float32
        self.classes, self.temperature = len(model.catalogue), model.temperature
        with torch.no_grad():
            example = _example(model, "float32").to(self.dtype)
            self.other = model.network(example).shape[1] > self.classes

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.dtype)
        logits = self.network((x - self.shift) * self.scale if self.scaled else x)
        return divide_other(logits, self.classes, self.temperature) if self.other else logits


def _traceable(model: nn.Module) -> nn.Module:
    if isinstance(model, Classifier):
        return _Reading(model)
    for name, child in model.named_children():
        setattr(model, name, _traceable(child))
    return model


def _onnx(model: nn.Module, about: str, example: Tensor) -> bytes:
    for package in ("onnx", "onnxscript"):
        try:
            import_module(package)
        except ImportError:
            raise FileError(
                f"ONNX needs the package {package}: install it with pip install 'intarsia[onnx]'"
            ) from None
    with _tracing("ONNX"), _quiet():
        program = torch.onnx.export(
            model,
            (example,),
            dynamo=True,
            dynamic_shapes=_any_rows(),
            input_names=["inputs"],
            output_names=["logits"],
            verbose=False,
        )
    assert program is not None
    model_proto = program.model_proto
    # With every node the exporter writes its place in our source, on this machine.
    graph = model_proto.graph
    for node in (*graph.node, *(n for f in model_proto.functions for n in f.node)):
        del node.metadata_props[:]
    for value in (*graph.input, *graph.output, *graph.value_info):
        del value.metadata_props[:]
    del graph.metadata_props[:]
    model_proto.metadata_props.add(key="intarsia", value=about)
    return model_proto.SerializeToString(deterministic=True)


@contextmanager
def _tracing(what: str) -> Iterator[None]:
    """Whatever a tracer raises for a custom network or operator becomes one error of ours."""
    try:
        yield
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
        raise ModelError(
            f"{what} cannot follow this network ({reason}): its forward, and the operator's "
            "function, must not branch on the values of tensors"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's notes to itself: a deprecation inside it, that torchvision is missing, and
    how its own recurrent layers keep their weights.
    """
    registration = logging.getLogger("torch.onnx._internal.exporter._registration")
    before = registration.level
    registration.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)
            warnings.filterwarnings(
                "ignore", r"The tensor attributes? .*_flat_weights", UserWarning
            )
            yield
    finally:
        registration.setLevel(before)


def _state(model: Classifier | Composition) -> dict[str, Tensor]:
    """The network's own state; of several networks each under `parts.NUMBER.`."""
    networks = [part.network for part in _classifiers(model)]
    several = isinstance(model, Composition) and model.joined is None
    return {
        f"parts.{i}.{name}" if several else name: tensor.detach().cpu().contiguous()
        for i, network in enumerate(networks)
        for name, tensor in network.state_dict().items()
    }


def _classifiers(model: nn.Module) -> list[Classifier]:
    return [part for part in model.modules() if isinstance(part, Classifier)]


def _facts(artifact: Exportable, model: Classifier | Composition) -> dict[str, Any]:
    """What a reader needs besides the tensors: classes in order, shape and scaling of inputs."""
    networks = _classifiers(model)
    about: dict[str, Any] = {
        "catalogue": model.catalogue,
        "rewarded": model.rewarded,
        "temperature": model.temperature,
        "shape": networks[0].shape,
        "scaling": [part.scaling.to_json() for part in networks],  # one per network
    }
    if isinstance(artifact, Module):
        about["architecture"] = str(artifact.architecture)
    if isinstance(artifact, Composition):
        about["operator"] = str(artifact.operator)
        about["parts"] = [part.name for part in artifact.parts]
        # Of a calibration: each network's logits times its scale, and the offset added at the end.
        calibration = {"scales": artifact.scales, "offset": artifact.offset}
        about |= {key: value for key, value in calibration.items() if value is not None}
    return plain(about, "export")


def _model(artifact: Exportable) -> Classifier | Composition:
    """A copy on the CPU in evaluation mode; a composition of one network is that network."""
    if isinstance(artifact, Module):
        return artifact.to_module()
    if not isinstance(artifact, Classifier | Composition):
        raise ModelError(
            f"a {type(artifact).__name__} cannot be exported: give a module, a composition or a "
            "Classifier; of a bank its modules one by one, or compose(bank)"
        )
    model = deepcopy(artifact).cpu().float().eval()
    if isinstance(model, Composition) and model.joined is not None and model.offset is None:
        return _classifiers(model)[0]
    return model


def _example(model: Classifier | Composition, inputs: str) -> Tensor:
    if inputs not in INPUTS:
        raise RecipeError(f"unknown type of inputs {inputs!r}: {nearest(inputs, INPUTS)}")
    # Two rows: torch.export takes a size of one for a constant.
    return torch.zeros(2, *_classifiers(model)[0].shape, dtype=INPUTS[inputs])


def _any_rows() -> tuple[dict[int, Any]]:
    return ({0: torch.export.Dim("rows")},)


def _format(path: Path, format: str | None) -> str:
    kind = path.suffix.lower().removeprefix(".") if format is None else format
    if kind in FORMATS:
        return kind
    if kind in ("pt", "pth", "pt2"):
        raise FileError(
            f"cannot export {path} as {kind}: such files hold pickles, which a reader must trust; "
            "use safetensors or onnx, or export_program in Python"
        )
    raise FileError(f"cannot export {path} as {kind!r}: {nearest(kind, FORMATS)}")
