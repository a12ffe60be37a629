"""What an operator is: a pure function on states or on logits, registered with its traits."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Literal, get_args

from torch import Tensor

from intarsia.errors import RecipeError, nearest
from intarsia.specs import Registry, RegistryEntry, Spec, check_setting, is_ours

State = Mapping[str, Tensor]
States = Sequence[State]
On = Literal["weights", "units", "logits"]
AUTO = "auto"  # of a setting that can be searched: the best one on labelled samples
SEARCHED = ("density", "scale")  # such settings, of operators on weights

# A user sets the other arguments of an operator, as in compose(bank, "name(key=value)").
OPERATORS = Registry(
    "operator",
    given=("states", "logits", "context"),
    on="weights",
    paper="",
    samples=False,
    colour=None,
    label="",
    logit_sum=False,
    weight_sum=False,
    mask=None,
    blocks=None,
    memory=None,
    chooses=False,
    router=None,
    tensorwise=False,
    entrywise=False,
    pieces=None,
    by_rows=False,
    most=None,
    modules=None,
)
"""Ways of joining by name; `@operator(...)` adds one, with its traits."""

Operator = RegistryEntry


def operator(
    name: str, *, on: On, paper: str, **traits: Any
) -> Callable[[Callable[..., Any]], Operator]:
    """Register a function as an operator; its signature is its schema, which settings must fit.

    It is called with what it works on and the `context` of the parts (see MergeContext):

    - on weights, `states` of one shape give a state of that shape; where all parts are changes of
      one base, the parameters are changes, in float64, and so is what it gives;
    - on units, they give a state with more units on some hidden axes;
    - on logits, one N x C tensor per part gives N x C.

    The parts come sorted by name. The other traits, which OPERATORS has the defaults of:

    - `samples`: it looks at samples, which must then be given;
    - `colour`: its own in figures, as #rrggbb; without it one is chosen;
    - `label`: what sentences call it instead of its name;
    - `logit_sum`: it gives exactly the sum of the parts' logits;
    - `weight_sum`: it adds up weights, so that parts which share no unit give the sum of their
      logits;
    - `mask`: for an operator on units, a function of the context that gives the mask of its state;
      without it those entries survive that are not 0;
    - `blocks`: for an operator on units, a function of the context that gives a BlockNetwork to run
      instead of a network of its state, which is then made only where it is asked for; it may give
      None;
    - `memory`: a function of the context that gives the bytes it takes at its peak, beyond the
      parts and its answer; without it they are four times those of the parts' tensors, and none
      on logits, where every part keeps its own network;
    - `chooses`: for an operator on logits, that it sends each input to some of the parts, so that
      the classes of the others get no answer;
    - `router`: for an operator on logits that looks at inputs, a function of the context and its
      settings that gives an nn.Module, from raw inputs to N x K; the operator finds its answer in
      `context.similarities`;
    - `tensorwise`: for an operator on weights, that a tensor of its answer depends on that tensor
      of the parts and of their origin alone, and on names, so that tensors can be joined one after
      another; or a function of its settings that says so (see `is_tensorwise`);
    - `entrywise`: for one that is tensorwise, that an entry of its answer depends on that entry
      and its place alone, so that a large tensor can be joined piece by piece; or such a function;
    - `pieces`: for one that is tensorwise, a function of TensorPieces, context and settings that
      looks at all pieces of a tensor, as often as it must, and gives the function that joins one
      of them (see operators/pieces.py); it is not asked where settings make the operator entrywise
      that need not be (see `joins_pieces`);
    - `by_rows`: with `pieces`, that these are whole rows of a matrix, one for each output unit; or
      a function of its settings that says so;
    - `most`: how many parts it joins at most;
    - `modules`: for an operator on logits, a function of the context and its settings that gives
      the modules that run in place of the parts, which must then fit as for joining weights.

    A setting `scale` may be "auto" where the operator is on weights: `compose` finds the best one
    on labelled samples, and calls the operator with it.
    """

    if on not in get_args(On):
        raise RecipeError(f"operator {name!r} works on {on!r}: {nearest(on, get_args(On))}")

    def add(function: Callable[..., Any]) -> Operator:
        if is_ours(OPERATORS.get(name)) and not is_ours(function):
            raise RecipeError(
                f"there is an operator {name!r} already, one of intarsia's own: take another name"
            )
        parameters = inspect.signature(function).parameters
        takes = list(parameters)
        expected = ["logits" if on == "logits" else "states", "context"]
        if takes[:2] != expected:
            raise RecipeError(
                f"operator {name!r} takes ({', '.join(takes)}): expected ({', '.join(expected)}) "
                "first, then its settings"
            )

        @wraps(function)
        def checked(*given: Any, **settings: Any) -> Any:
            for key, value in settings.items():
                if key in parameters:
                    check_setting(name, parameters[key], value)
            return function(*given, **settings)

        OPERATORS.register(name, on=on, paper=paper, **traits)(checked)
        entry: Operator = OPERATORS[name]
        return entry

    return add


def copies(count: int) -> Callable[[Any], int]:
    """For the trait `memory`: so many times the bytes of the parts' tensors."""
    return lambda context: count * int(context.nbytes)


def is_tensorwise(spec: str | Mapping[str, Any] | Spec) -> bool:
    """Whether an operator with these settings joins one tensor after another; see `operator`."""
    return _holds("tensorwise", spec)


def is_entrywise(spec: str | Mapping[str, Any] | Spec) -> bool:
    """Whether an operator with these settings joins a tensor piece by piece; see `operator`."""
    return is_tensorwise(spec) and _holds("entrywise", spec)


def joins_pieces(spec: str | Mapping[str, Any] | Spec) -> bool:
    """Whether the `pieces` of an operator with these settings are to be asked; see `operator`.

    One without them that is entrywise can be called with pieces instead of whole tensors, and so
    can one whose settings leave nothing to look for in the whole, such as TIES without a trim.
    """
    entry = OPERATORS.entry(spec)
    return entry.pieces is not None and (entry.entrywise is True or not is_entrywise(spec))


def takes_rows(spec: str | Mapping[str, Any] | Spec) -> bool:
    """Whether an operator with these settings wants pieces that are whole rows; see `operator`."""
    return _holds("by_rows", spec)


def looks_at_samples(spec: str | Mapping[str, Any] | Spec) -> bool:
    """Whether an operator with these settings needs samples, if only to find a setting."""
    read = OPERATORS.spec(spec)
    return bool(OPERATORS[read.name].samples) or bool(searched(read))


def searched(operator: Spec) -> list[str]:
    """The settings that are to be found on samples."""
    return [key for key in SEARCHED if operator.arguments.get(key) == AUTO]


def _holds(name: str, spec: str | Mapping[str, Any] | Spec) -> bool:
    read = OPERATORS.spec(spec)
    trait = getattr(OPERATORS[read.name], name)
    if not callable(trait):
        return bool(trait)
    parameters = OPERATORS.parameters(read.name)
    for key, value in read.arguments.items():
        if key not in searched(read):
            check_setting(read.name, parameters[key], value)
    settings = OPERATORS.settings(read)
    if "density" in searched(read):  # a density at which something is trimmed
        settings = {**settings, "density": 0.5}
    return bool(trait(settings))


def joins_logits(operator: Operator) -> bool:
    """Whether the logits of the parts as they are suffice: not inputs, not other modules'."""
    return operator.on == "logits" and operator.router is None and operator.modules is None
