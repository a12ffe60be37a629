"""Networks by name or by a custom factory, and the origin that a seed gives."""

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import nn

from intarsia.errors import ModelError, shortened
from intarsia.models.axes import Wiring, gives_output
from intarsia.models.custom.adapting import answer_logits, logits_in, tie_shared
from intarsia.models.custom.published import is_published
from intarsia.models.custom.trial import answer
from intarsia.specs import Registry, Spec

MODELS = Registry("model", given=("shape", "outputs"), convolutional=False)
"""Networks by name; `@MODELS.register("mine")` adds a function of shape, outputs and settings.

Trait: whether it is `convolutional`, and trained with the settings for such networks.
"""

Factory: TypeAlias = Callable[[tuple[int, ...], int], nn.Module]
"""A custom network: a function of the input shape and the number of outputs."""

Model: TypeAlias = str | Mapping[str, Any] | Spec | Factory
"""A name with its settings, `mlp(512, 256)`, as text or as a mapping; or a factory."""

_WRAP = (
    "what gives more, or in another form, has them as `.logits` or by that name in a dict, or is "
    "held by a module whose forward returns them"
)


def build(model: Model, shape: tuple[int, ...], outputs: int) -> nn.Module:
    """A network of N x *shape scaled float32 inputs and N x outputs logits, with fresh weights.

    A factory's network is tried on two zero inputs: a misfit shows here and not in training.
    """
    shape = _shape(shape)
    if not isinstance(outputs, int) or outputs < 1:
        raise ModelError(f"outputs is {shortened(outputs)}: expected a whole number of at least 1")
    if isinstance(model, nn.Module):
        raise ModelError(
            f"the model is a ready {type(model).__name__}: give a factory f(shape, outputs) that "
            "makes a new one, because every seed needs its own initial weights"
        )
    if isinstance(model, str | Mapping | Spec):
        return MODELS.call(model_spec(model), shape=shape, outputs=outputs)
    if not callable(model):
        raise ModelError(
            f"the model is {shortened(model)}: expected a name, a mapping or a factory f(shape, "
            "outputs)"
        )
    _check_signature(model)
    network = model(shape, outputs)
    _check_form(model, network, shape, outputs)
    return network


def model_spec(model: str | Mapping[str, Any] | Spec) -> Spec:
    """The registered model that is meant, with its settings."""
    if is_published(model):
        raise ModelError(
            f"the model {shortened(model)} is a published network, which has weights: give what "
            f"published({shortened(model)}) returns, or to train from it base={shortened(model)}"
        )
    return MODELS.spec(model)


def copies_of(network: nn.Module) -> Factory:
    """A factory whose networks are copies of a ready one, weights and all.

    Where another number of outputs is asked for, the last Linear layer is a new one of that size.
    """
    return _Copies(network)


def as_model(model: Model | nn.Module | None) -> Model | None:
    """A ready network as a factory of its form; anything else as it is."""
    return copies_of(model) if isinstance(model, nn.Module) else model


class _Copies:
    def __init__(self, network: nn.Module) -> None:
        try:
            self.network = copy.deepcopy(network).cpu().eval()
        except Exception as cause:
            raise ModelError(
                f"the {type(network).__name__} cannot be copied ({cause}): give a factory "
                "f(shape, outputs) that makes a new one"
            ) from cause
        tie_shared(self.network)  # moved to another device, shared tensors would part

    def __call__(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        made = copy.deepcopy(self.network)
        if self._outputs(shape) not in (outputs, None):
            _replace_last(made, outputs)
        return made.to(torch.empty(0).device)  # which is meta where only its form is asked for

    def _outputs(self, shape: tuple[int, ...]) -> int | None:
        """How many outputs the network has; None where it cannot answer, which `build` will say."""
        try:
            with torch.device("cpu"):
                logits = logits_in(answer(self.network, shape))
        except Exception:
            return None
        return logits.shape[1] if isinstance(logits, torch.Tensor) and logits.dim() == 2 else None


def _replace_last(network: nn.Module, outputs: int) -> None:
    linear = [path for path, layer in network.named_modules() if isinstance(layer, nn.Linear)]
    if not linear or not linear[-1]:
        raise ModelError(
            f"the {type(network).__name__} has no Linear layer whose outputs could be {outputs}: "
            "give a factory f(shape, outputs) that makes it"
        )
    old = network.get_submodule(linear[-1])
    assert isinstance(old, nn.Linear)
    new = nn.Linear(old.in_features, outputs, old.bias is not None, dtype=old.weight.dtype)
    network.set_submodule(linear[-1], new)


def initialise(model: Model, shape: tuple[int, ...], outputs: int, seed: int) -> nn.Module:
    """The origin theta0 of a seed, on the CPU: same bytes each time, global generator untouched."""
    network = _seeded(model, shape, outputs, seed)
    if not isinstance(model, str | Mapping | Spec):
        _check_repeats(network, _seeded(model, shape, outputs, seed))
    return network


def silence(network: nn.Module, wiring: Wiring) -> bool:
    """Set the layer that makes the logits to 0, so that the network begins by saying nothing.

    Modules of one seed share their initial weights, and with them whatever these happen to answer;
    in a sum of K modules that chance answer counts K times until each has unlearned it. Only a
    plain linear layer can be set to 0 and still learn; returns whether there is one.
    """
    gives = [name for name, entry in wiring.items() if gives_output(entry)]
    layers = {network.get_submodule(name.rpartition(".")[0]) for name in gives}
    if len(layers) != 1 or not all(type(layer) is nn.Linear for layer in layers):
        return False
    (layer,) = layers
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    return True


def _seeded(model: Model, shape: tuple[int, ...], outputs: int, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        # torch.manual_seed would also reseed the accelerators
        torch.default_generator.manual_seed(seed)
        return build(model, shape, outputs).cpu()


def _check_repeats(first: nn.Module, second: nn.Module) -> None:
    if first is second:
        raise ModelError(
            "the factory returns the same network on every call: make a new one inside it, "
            "because every seed needs its own initial weights"
        )
    state, repeated = first.state_dict(), second.state_dict()
    for name, tensor in state.items():
        if name not in repeated or not torch.equal(tensor, repeated[name]):
            raise ModelError(
                f"the factory gives {name!r} other values for the same seed: draw initial weights "
                "with torch's global generator (as torch.nn does), not with another source"
            )


def _refuse_complex(network: nn.Module) -> None:
    tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    for name, tensor in tensors.items():
        if tensor.is_complex():
            raise ModelError(
                f"the factory's {type(network).__name__} has {name!r} of complex numbers: expected "
                "real ones; keep the two parts in two tensors, and join them in the forward"
            )


def _shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    shape = tuple(shape)
    if not shape or not all(isinstance(size, int) and size > 0 for size in shape):
        raise ModelError(
            f"the input shape is {shape}: expected positive whole numbers, without the batch, "
            "such as (784,) or (1, 28, 28)"
        )
    return shape


def _check_signature(factory: Any) -> None:
    """A class of networks is a factory only if it is made from shape and outputs."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # as of what is not written in Python: the call will tell
        return
    try:
        signature.bind((1,), 1)
    except TypeError:
        name = getattr(factory, "__name__", type(factory).__name__)
        raise ModelError(
            f"{name} takes {signature}: expected a factory f(shape, outputs); where the network "
            f"needs neither, lambda shape, outputs: {name}(...)"
        ) from None


# forms that a factory has made -> whether they answer with a tensor
_TRIED: WeakKeyDictionary[Any, dict[Any, bool]] = WeakKeyDictionary()


def _check_form(factory: Any, network: Any, shape: tuple[int, ...], outputs: int) -> None:
    """Refuse what is no network, or no network that can be trained; each form is tried once."""
    if not isinstance(network, nn.Module):
        raise ModelError(
            f"the factory returned {type(network).__name__}: expected a torch.nn.Module"
        )
    _refuse_complex(network)
    tie_shared(network)
    tensors = {n: (t.shape, t.dtype, t.device) for n, t in network.state_dict().items()}
    # By what the factory makes today: it may be the same object and its class another.
    form = (type(network), repr(network), str(tensors), shape, outputs)
    try:
        tried = _TRIED.setdefault(factory, {})
    except TypeError:  # a factory that cannot be hashed or referred to weakly
        tried = {}
    if form not in tried:
        tried[form] = _try_out(network, shape, outputs)
    if not tried[form]:
        answer_logits(network)


def _try_out(network: nn.Module, shape: tuple[int, ...], outputs: int) -> bool:
    """Whether it answers with the logits themselves, as a tensor."""
    try:
        said = answer(network, shape)
    except Exception as cause:
        raise ModelError(
            f"the factory's {type(network).__name__} fails on two inputs of shape {shape}: "
            f"{type(cause).__name__}: {cause}"
        ) from cause
    logits = logits_in(said)
    seen = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
    if seen != (2, outputs):
        raise ModelError(
            f"the factory's {type(network).__name__} gives {seen} for two inputs of shape {shape}: "
            f"expected logits of shape {(2, outputs)}; {_WRAP}"
        )
    return logits is said
