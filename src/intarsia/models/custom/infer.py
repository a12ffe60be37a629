"""The wiring of a custom network, read off one run of its forward pass."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.overrides import TorchFunctionMode

from intarsia.errors import WiringError
from intarsia.models.axes import INPUT, OUTPUT, TensorAxes, Wiring, check_wiring
from intarsia.models.custom.adapting import logits_in
from intarsia.models.custom.axis_labels import (
    Label,
    RawLabels,
    UnreadableError,
    Variables,
    committed,
)
from intarsia.models.custom.layer_rules import CONSTANTS, FORM_ALONE, FUNCTIONS, Step, Unlabelled
from intarsia.models.custom.trial import evaluating, input_dtype

BATCH = 3
# from tensors to Python's values
DECIDING = (
    "bool", "item", "tolist", "float", "int", "index", "numpy", "array", "equal", "allclose",
    "is_nonzero", "contains",
)  # fmt: skip
REMEDY = (
    "give the network a `wiring`: a mapping from every parameter and buffer name to its axes, or a "
    "method wiring(shape) that returns one"
)


def infer_wiring(network: nn.Module, shape: tuple[int, ...]) -> Wiring:
    """Run the network on a few zeros, and follow its units from function to function.

    Reads common functions (see layer_rules.py); WiringError names the first that it cannot read.
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
    try:
        check_wiring(wiring, state)
    except WiringError as cause:
        kind = type(network).__name__
        raise WiringError(f"cannot name the axes of {kind}: {cause}; {REMEDY}") from cause
    return wiring


def _read(network: nn.Module, shape: tuple[int, ...]) -> dict[int, TensorAxes]:
    kind = type(network).__name__
    try:
        example = next((p for p in network.parameters()), torch.zeros(()))
        reads_integers = input_dtype(network, shape) == torch.int64
        dtype = torch.int64 if reads_integers else example.dtype
        x = torch.zeros(BATCH, *shape, dtype=dtype, device=example.device)
        reader = _Reader(network)
        with reader.watching(), reader:
            reader.begin(x)
            answer = logits_in(network(x))
        reader.finish(answer)
        return reader.variables.name_all(reader.entries())
    except UnreadableError as cause:
        raise WiringError(f"cannot read the axes of {kind}: {cause}; {REMEDY}") from cause
    except WiringError:
        raise
    except Exception as cause:
        raise WiringError(
            f"cannot trace {kind} on inputs of shape {shape}: {type(cause).__name__}: {cause}; "
            f"{REMEDY}"
        ) from cause


class _Reader(TorchFunctionMode):
    """Sees every function that a network calls, and labels the dimensions of what it gives."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.variables = Variables()
        self._names: dict[int, str] = {}
        for name, tensor in network.state_dict(keep_vars=True).items():
            self._names.setdefault(id(tensor), name)
        self._labels: dict[int, RawLabels] = {}
        self._comparisons: set[int] = set()  # whole numbers and truths that come from real ones
        self._unlabelled: dict[int, str] = {}  # what must not be used -> why
        self._asked: set[int] = set()  # the tensors whose labels a rule has looked at
        self._alive: list[Tensor] = []  # an id is a tensor's for as long as that lives
        self._paths = {id(module): path for path, module in network.named_modules()}
        self._stack: list[nn.Module] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While open, it is known which module's forward is running."""
        hooks = [
            register_module_forward_pre_hook(lambda module, _: self._stack.append(module)),
            register_module_forward_hook(self._leave),
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _leave(self, *_: Any) -> None:
        self._stack.pop()

    def begin(self, x: Tensor) -> None:
        inputs = (self.variables.new(INPUT, size) for size in x.shape[1:])
        self._note(x, (None, *inputs))

    def finish(self, answer: Any) -> None:
        if not isinstance(answer, Tensor) or answer.ndim != 2:
            raise UnreadableError("the network must return one tensor N x outputs")
        label = committed(self.variables, self.raw(answer))[-1]
        if label is None:
            return
        label = self.variables.expand(label)
        if len(label) > 1:  # several layers side by side, none of which gives all outputs
            self.variables.fix(label)
            return
        if any(variable is None or block != 1 for variable, block in label):
            raise UnreadableError("several outputs make one unit")
        self.variables.unify(label, self.variables.new(OUTPUT, answer.shape[1]))

    def entries(self) -> dict[int, Any]:
        """The labels of the network's own tensors that some function has read."""
        return {
            key: committed(self.variables, labels)
            for key, labels in self._labels.items()
            if key in self._names
        }

    def raw(self, tensor: Tensor) -> RawLabels:
        """A tensor's labels; a parameter's are new, and become those of whatever it meets."""
        self._asked.add(id(tensor))
        if id(tensor) in self._labels:
            return self._labels[id(tensor)]
        name = self._names.get(id(tensor))
        if name is None:
            return (None,) * tensor.ndim  # a constant stays as it is when units move
        self._labels[id(tensor)] = tuple(
            self.variables.new(f"{name}.{d}", size, free=True) if size > 1 else None
            for d, size in enumerate(tensor.shape)
        )
        return self._labels[id(tensor)]

    def assign(self, tensor: Tensor, dimension: int, label: Label) -> None:
        """Label a dimension of one entry, which a parameter's own labels leave out."""
        if id(tensor) in self._names:
            own = list(self.raw(tensor))
            own[dimension] = label
            self._labels[id(tensor)] = tuple(own)

    def path_of(self, tensor: Tensor) -> str | None:
        """The layer that a tensor of the state belongs to, as a name for its units."""
        name = self._names.get(id(tensor))
        if name is None:
            return None
        path = name.rpartition(".")[0]
        return f"{path}.units" if path in (INPUT, OUTPUT) else path or name

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        given = _tensors((args, kwargs))
        shapes = [tuple(t.shape) for t in given]
        value = func(*args, **kwargs)
        if not any(self._is_known(t) for t in given):
            return value
        outputs, name = _tensors(value), _name(func)
        try:
            if name == "setitem":
                self._write(args[0], given)
            elif outputs:
                if shapes != [tuple(t.shape) for t in given]:
                    raise UnreadableError("it changes a shape in place")
                self._follow(Step(self, name, args, kwargs, value), given, outputs)
            elif name in DECIDING and any(self._is_real(t) for t in given):
                raise UnreadableError("what follows depends on values, and one run shows one way")
        except UnreadableError as cause:
            raise WiringError(
                f"cannot read the axes of {self._where(name)}: {cause}; {REMEDY}"
            ) from cause
        return value

    def _follow(self, step: Step, given: list[Tensor], outputs: list[Tensor]) -> None:
        """Label what a function gives."""
        if step.name in CONSTANTS:
            return
        for tensor in given:
            if id(tensor) in self._unlabelled:
                raise UnreadableError(self._unlabelled[id(tensor)])
        if any(self._is_real(t) for t in given):
            self._comparisons.update(id(t) for t in outputs if not t.is_floating_point())
        rule = FUNCTIONS.get(step.name)
        if rule is None:
            if any(t.is_floating_point() or t.is_complex() for t in outputs):
                raise UnreadableError("there is no rule for it")
            self._note_whole_numbers(given, outputs)
            return
        self._asked = set()
        labels = rule(step)
        if step.name not in FORM_ALONE:
            self._check_asked(given)
        many = labels if isinstance(labels, list) else [labels] * len(outputs)
        for tensor, own in zip(outputs, many, strict=False):
            if isinstance(own, Unlabelled):
                self._unlabelled[id(tensor)] = own.reason
                self._alive.append(tensor)
            else:
                self._note(tensor, own)

    def _check_asked(self, given: list[Tensor]) -> None:
        """A rule that leaves out a tensor with units would let these move alone."""
        for tensor in given:
            if id(tensor) not in self._asked and self._has_units(tensor):
                what = self._names.get(id(tensor))
                raise UnreadableError(
                    f"there is no rule for its argument {what!r}"
                    if what
                    else f"there is no rule for its argument of shape {tuple(tensor.shape)}"
                )

    def _note_whole_numbers(self, given: list[Tensor], outputs: list[Tensor]) -> None:
        """Positions and masks; but which unit is the largest, say, is told by its place."""
        placed = any(self._is_real(t) and self._has_units(t) for t in given)
        for tensor in outputs:
            self._note(tensor, (None,) * tensor.ndim)
            if placed:
                self._unlabelled[id(tensor)] = "it depends on the places of units"

    def _write(self, into: Tensor, given: list[Tensor]) -> None:
        """Entries written in place may be a mask's, but not units."""
        if any(self._has_units(tensor) for tensor in given):
            raise UnreadableError("it writes some of the units in place")
        if not self._is_known(into):
            self._note(into, (None,) * into.ndim)

    def _has_units(self, tensor: Tensor) -> bool:
        if not self._is_known(tensor):
            return False
        labels = committed(self.variables, self.raw(tensor))
        return any(self.variables.without_input(label) is not None for label in labels)

    def _is_known(self, tensor: Tensor) -> bool:
        key = id(tensor)
        return key in self._labels or key in self._names or key in self._unlabelled

    def _is_real(self, tensor: Tensor) -> bool:
        """Whether it is computed from real numbers, and not from token ids and masks alone."""
        return tensor.is_floating_point() or id(tensor) in self._comparisons

    def _note(self, tensor: Tensor, labels: RawLabels) -> None:
        if len(labels) != tensor.ndim:
            raise UnreadableError("it gives a tensor of other dimensions than expected")
        self._labels[id(tensor)] = labels
        self._alive.append(tensor)

    def _where(self, function: str) -> str:
        if not self._stack or not self._paths.get(id(self._stack[-1]), ""):
            return f"{function!r} in the network's own forward"
        module = self._stack[-1]
        path, kind = self._paths[id(module)], type(module)
        if kind.__module__.startswith("torch.nn.") and not list(module.children()):
            return f"layer {path!r} ({kind.__name__})"
        return f"{function!r} in layer {path!r} ({kind.__name__})"


def _tensors(values: Any) -> list[Tensor]:
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, tuple | list):
        return []
    return [tensor for value in values for tensor in _tensors(value)]


def _name(function: Any) -> str:
    name = str(getattr(function, "__name__", function))
    if name in ("__get__", "__set__"):
        name = str(getattr(getattr(function, "__self__", None), "__name__", name))
    return name.strip("_")
