"""Modules and compositions for use without intarsia: tensors, ONNX, or a plain network."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, fx, nn

from intarsia.composition import Composition
from intarsia.composition.operators.logits.routers import EncodedInputs, Router
from intarsia.errors import FileError, ModelError, RecipeError, nearest
from intarsia.files import canonical, plain, write_whole
from intarsia.models.custom.adapting import answer_logits, logits_in, share_tied, tied_names
from intarsia.modules import Classifier, Module
from intarsia.modules.classifier import divide_other

Exportable = Module | Composition | Classifier
FORMATS = ("safetensors", "onnx")
INPUTS = {"float32": torch.float32, "uint8": torch.uint8}


def export(
    artifact: Exportable,
    path: str | Path,
    format: str | None = None,
    inputs: str = "float32",
    shape: Sequence[int] | None = None,
) -> str:
    """Write a file that others read: `safetensors` (tensors alone) or `onnx` (the computation).

    The format follows from the name's ending where it is not given. ONNX needs the extra `onnx`;
    its file takes raw inputs, N x *shape of the type `inputs` (float32 or uint8) and any N, and
    gives logits. The catalogue, scaling and temperature are in the metadata of either. Returns
    the format.

    Where modules read features, the encoder is part of the computation: raw inputs of `shape` go
    in, by default of those that it had in training. The tensors alone are those behind it.
    """
    kind = _format(Path(path), format)
    if kind == "onnx":
        model, example = _computation(artifact, inputs, shape)
        facts = _facts(artifact, model) | {"shape": list(example.shape[1:])}
        content = _onnx(model, canonical(facts), example)
    else:
        model = _model(artifact)
        if isinstance(model, Composition) and model.router is not None:
            raise FileError(
                f"{model.operator.name} chooses modules by what it sees of an input, which tensors "
                "alone do not hold: export it as onnx, or save() the composition"
            )
        content = safetensors.torch.save(
            _state(model), {"network": canonical(_facts(artifact, model))}
        )
    write_whole(path, content)
    return kind


def export_program(
    artifact: Exportable, inputs: str = "float32", shape: Sequence[int] | None = None
) -> torch.export.ExportedProgram:
    """The computation from raw inputs to logits as torch.export has it, for any number of rows.

    It has no file format here: the archives of torch.export.save hold pickled parts, which their
    reader would have to trust. `shape` as in `export`.
    """
    model, example = _computation(artifact, inputs, shape)
    with _tracing("export_program"), _quiet(), warnings.catch_warnings():
        # a shared parameter is put under its other names for the time of a forward
        warnings.filterwarnings("ignore", r"(?s).*assigned during export", UserWarning)
        return torch.export.export(model, (example,), dynamic_shapes=_any_rows())


def to_network(artifact: Exportable) -> nn.Module:
    """A network of torch's own layers from raw inputs, N x *shape, to logits; no class of ours.

    The layers keep their names. Of a network that asks for the type or the size of what it is
    given, as those of transformers do, the tensors keep theirs, and torch's operations on them are
    written down, for the CPU. It is made for use, not for training: dropout is off for good.
    """
    model, example = _computation(artifact, "float32", None)
    share_tied(model)  # a hook would be traced once, and leave the tracer's stand-ins behind
    with _tracing("to_network"):
        if isinstance(model, EncodedModel):
            model.encoder = _followed(model.encoder, example)
        root = _traceable(model)
        return fx.GraphModule(root, fx.Tracer().trace(root), "Network").eval()


class _Reading(nn.Module):
    """A classifier without the input checks, which a tracer cannot follow."""

    shift: Tensor
    scale: Tensor

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.scaled = model.scaling.kind != "none"
        if self.scaled:
            self.register_buffer("shift", model.shift)
            self.register_buffer("scale", model.scale)
        self.dtype = torch.int64 if model.reads_integers else torch.float32
        self.classes, self.temperature = len(model.catalogue), model.temperature
        example = _example(model.shape, "float32").to(self.dtype)
        with torch.no_grad():
            self.other = logits_in(model.network(example)).shape[1] > self.classes
        self.network = _followed(model.network, example)

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.dtype)
        logits = logits_in(self.network((x - self.shift) * self.scale if self.scaled else x))
        return divide_other(logits, self.classes, self.temperature) if self.other else logits


class EncodedModel(nn.Module):
    """An encoder's network and what reads its features, as one."""

    def __init__(self, encoder: nn.Module, model: nn.Module) -> None:
        super().__init__()
        self.encoder, self.model = encoder, model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(self.encoder(x))


def _computation(
    artifact: Exportable, inputs: str, shape: Sequence[int] | None
) -> tuple[nn.Module, Tensor]:
    """The whole way from raw inputs to logits on the CPU, and raw inputs to try it with."""
    model = _model(artifact)
    if not isinstance(artifact, Module):
        model = model.float()  # as the example is
    encoder = _classifiers(model)[0].encoder
    if any(isinstance(part, EncodedInputs) for part in model.modules()):
        raise ModelError(
            "its router reads features of an encoder beside the modules, which is not exported: "
            'route by features="readout" or "inputs"'
        )
    if encoder is None:
        if shape is not None:
            raise ModelError("shape= is that of an encoder's raw inputs, and there is no encoder")
        return model, _example(_classifiers(model)[0].shape, inputs)
    network = encoder.for_shape(encoder.shape if shape is None else tuple(shape)).found()
    if not isinstance(network, nn.Module):
        raise ModelError(
            f"the encoder {encoder} is a function, which cannot be written down: make it a "
            "torch.nn.Module, or export the modules alone as safetensors"
        )
    for part in (model, *_classifiers(model)):
        part.encoder = None  # it is in front of them
    front = deepcopy(network).cpu()
    front.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    whole = EncodedModel(front, model).eval()
    return whole, _example(encoder.shape if shape is None else tuple(shape), inputs)


def _traceable(model: nn.Module) -> nn.Module:
    if isinstance(model, Classifier):
        return _Reading(model)
    if isinstance(model, Router):
        return model.similarities
    for name, child in model.named_children():
        setattr(model, name, _traceable(child))
    return model


def _followed(network: nn.Module, example: Tensor) -> nn.Module:
    """The network itself where torch.fx can follow it; else its operations on such an example."""
    try:
        fx.Tracer().trace(network)
    except Exception:  # of whatever code a network has
        answer_logits(network)
        with _quiet():
            program = torch.export.export(network, (example,), dynamic_shapes=_any_rows()).module()
        return _operations(program)
    return network


def _operations(program: fx.GraphModule) -> fx.GraphModule:
    """A program of one input and one output as a graph of torch.fx, for inputs of any type.

    What holds it to the type and the device of the example goes.
    """
    graph = program.graph
    checks = torch.ops.aten._assert_tensor_metadata.default
    for node in (
        *graph.find_nodes(op="call_module", target="_guards_fn"),
        *graph.find_nodes(op="call_function", target=checks),
    ):
        graph.erase_node(node)
    (output,) = graph.find_nodes(op="output")
    output.args = (output.args[0][0],)
    graph.set_codegen(fx.graph.CodeGen())
    return fx.GraphModule(program, graph, "Operations")


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
    """The networks' own states; of several networks each under `parts.NUMBER.`."""
    networks = [part.network for part in _classifiers(model)]
    several = isinstance(model, Composition) and model.apart
    return {
        f"parts.{i}.{name}" if several else name: tensor.detach().cpu().contiguous()
        for i, network in enumerate(networks)
        for name, tensor in _own_state(network).items()
    }


def _own_state(network: nn.Module) -> dict[str, Tensor]:
    """What load_state_dict asks for: a tied weight under each of its names."""
    state = network.state_dict()
    return state | {name: state[first].clone() for name, first in tied_names(network).items()}


def _classifiers(model: nn.Module) -> list[Classifier]:
    return [part for part in model.modules() if isinstance(part, Classifier)]


def _facts(artifact: Exportable, model: nn.Module) -> dict[str, Any]:
    """What a reader needs besides the tensors: classes in order, shape and scaling of inputs."""
    networks = _classifiers(model)
    about: dict[str, Any] = {
        "catalogue": artifact.catalogue,
        "rewarded": artifact.rewarded,
        "temperature": artifact.temperature,
        "shape": networks[0].shape,
        "scaling": [part.scaling.to_json() for part in networks],  # one per network
    }
    if artifact.encoder is not None:
        about["encoder"] = artifact.encoder.to_json()
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
            "Classifier; of a bank its modules one by one, or compose(bank); of a "
            "ModularClassifier its composition_"
        )
    model = deepcopy(artifact).cpu().eval()
    if isinstance(model, Composition) and not model.apart and model.offset is None:
        return _classifiers(model)[0]
    return model


def _example(shape: Sequence[int], inputs: str) -> Tensor:
    if inputs not in INPUTS:
        raise RecipeError(f"unknown type of inputs {inputs!r}: {nearest(inputs, INPUTS)}")
    # Two rows: torch.export takes a size of one for a constant.
    return torch.zeros(2, *shape, dtype=INPUTS[inputs])


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
