"""The wiring of a custom network, read off a trace of its forward pass."""

from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.utils import parametrize

from intarsia.errors import WiringError
from intarsia.models.axes import INPUT, OUTPUT, TensorAxes, Wiring, check_wiring
from intarsia.models.custom.axis_labels import Label, Labels, UnreadableError, Variables
from intarsia.models.custom.layer_rules import FUNCTIONS, LAYERS, Step
from intarsia.models.custom.trial import evaluating, input_dtype

BATCH = 3
REMEDY = (
    "give the network a `wiring`: a mapping from every parameter and buffer name to its axes, or a "
    "method wiring(shape) that returns one"
)


def infer_wiring(network: nn.Module, shape: tuple[int, ...]) -> Wiring:
    """Trace the network, run it on a few zeros, and follow its units from layer to layer.

    Reads common layers (see layer_rules.py); WiringError names the first one that it cannot read.
    """
    with evaluating(network):
        entries = _read(network, shape)
    wiring: dict[str, TensorAxes] = {}
    state = network.state_dict(keep_vars=True)
    for name, tensor in state.items():
        if tensor.ndim and id(tensor) not in entries:
            raise WiringError(
                f"cannot read the axes of {name!r}: no layer of the forward pass uses it; take it "
                f"out, or {REMEDY}"
            )
        wiring[name] = entries.get(id(tensor), ())
    check_wiring(wiring, state)
    return wiring


def _read(network: nn.Module, shape: tuple[int, ...]) -> dict[int, TensorAxes]:
    kind = type(network).__name__
    try:
        # a single layer is held by another, or the trace would go inside it
        root = nn.Sequential(network) if type(network) in LAYERS else network
        graph = fx.GraphModule(root, fx.Tracer().trace(root))
        example = next((p for p in network.parameters()), torch.zeros(()))
        reads_integers = input_dtype(network, shape) == torch.int64
        dtype = torch.int64 if reads_integers else example.dtype
        reader = _Reader(graph, network)
        reader.run(torch.zeros(BATCH, *shape, dtype=dtype, device=example.device))
        return reader.variables.name_all(reader.entries)
    except UnreadableError as cause:
        raise WiringError(f"cannot read the axes of {kind}: {cause}; {REMEDY}") from cause
    except WiringError:
        raise
    except Exception as cause:
        raise WiringError(
            f"cannot trace {kind} on inputs of shape {shape}: {type(cause).__name__}: {cause}; "
            f"{REMEDY}"
        ) from cause


class _Reader(fx.Interpreter):
    """Runs the graph on real values and labels every dimension of every tensor on the way."""

    def __init__(self, graph: fx.GraphModule, network: nn.Module) -> None:
        super().__init__(graph)
        self.known = {id(tensor) for tensor in network.state_dict(keep_vars=True).values()}
        self.extra_traceback = False  # it would write into our messages
        self.variables = Variables()
        self.entries: dict[int, Labels] = {}
        self.labels: dict[fx.Node, Labels] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        try:
            labels = self._follow(n, value)
        except UnreadableError as cause:
            raise WiringError(
                f"cannot read the axes of {self._where(n)}: {cause}; {REMEDY}"
            ) from cause
        if labels is not None:
            self.labels[n] = labels
        return value

    def _follow(self, node: fx.Node, value: Any) -> Labels | None:
        if node.op == "output":
            self._finish(node, value)
            return None
        if not isinstance(value, Tensor):
            if isinstance(value, tuple | list) and any(isinstance(v, Tensor) for v in value):
                raise UnreadableError("it gives several tensors")
            return None
        if node.op == "placeholder":
            return None, *(self.variables.new(INPUT) for _ in value.shape[1:])
        if node.op == "get_attr":
            return self._bare(str(node.target), value)
        tensors = [other for other in node.all_input_nodes if other in self.labels]
        if not tensors:
            return (None,) * value.ndim
        module = self.fetch_attr(str(node.target)) if node.op == "call_module" else None
        if module is not None and parametrize.is_parametrized(module):
            raise UnreadableError("its weights are parametrised")
        rule = _layer_rule(module) if module is not None else _function_rule(node)
        if rule is None:
            raise UnreadableError("there is no rule for it")
        return rule(Step(self, node, module, value, tensors))

    def _bare(self, name: str, value: Tensor) -> Labels:
        """A parameter used without a layer: its axes are those of whatever it meets."""
        if id(value) not in self.known:
            return (None,) * value.ndim  # a constant stays as it is when units move
        if id(value) not in self.entries:
            self.entries[id(value)] = tuple(
                self.variables.new(f"{name}.{d}", free=True) if size > 1 else None
                for d, size in enumerate(value.shape)
            )
        return self.entries[id(value)]

    def _finish(self, node: fx.Node, value: Any) -> None:
        returned = node.args[0]
        if not isinstance(value, Tensor) or value.ndim != 2 or not isinstance(returned, fx.Node):
            raise UnreadableError("the network must return one tensor N x outputs")
        label = self.labels[returned][-1]
        if label is not None and self.variables.find(label)[1] != 1:
            raise UnreadableError("several outputs make one unit")
        if label is not None:
            self.variables.unify(label, self.variables.new(OUTPUT))

    def wire(self, tensor: Tensor | None, labels: Labels) -> None:
        """Note a tensor's labels; a tensor used twice has the same units both times."""
        if tensor is None:
            return
        for old, new in zip(self.entries.get(id(tensor), ()), labels, strict=False):
            if (old is None) != (new is None):
                raise UnreadableError(
                    "a weight that is used twice has units along a dimension only once"
                )
            if old is not None and new is not None:
                self.variables.unify(old, new)
        self.entries.setdefault(id(tensor), labels)

    def given_by(self, weight: Tensor, name: str) -> Label | None:
        """The axis of the units that a weight gives."""
        if id(weight) in self.entries:
            return self.entries[id(weight)][0]
        return self.variables.new(f"{name}.units" if name in (INPUT, OUTPUT) else name)

    def _where(self, node: fx.Node) -> str:
        if node.op == "call_module":
            return (
                f"layer {str(node.target)!r} ({type(self.fetch_attr(str(node.target))).__name__})"
            )
        function = node.target if isinstance(node.target, str) else _name(node.target)
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        if not stack:
            return f"{function!r} in the network's own forward"
        path, kind = stack[-1]
        return f"{function!r} in layer {path!r} ({getattr(kind, '__name__', kind)})"


def _layer_rule(module: nn.Module) -> Any:
    return next((LAYERS[kind] for kind in type(module).__mro__ if kind in LAYERS), None)


def _function_rule(node: fx.Node) -> Any:
    if isinstance(node.target, str):
        return FUNCTIONS.get(node.target.rstrip("_"))
    origin = (getattr(node.target, "__module__", None) or "torch").split(".")[0]
    return (
        FUNCTIONS.get(_name(node.target).rstrip("_")) if origin in ("torch", "_operator") else None
    )


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", function))
