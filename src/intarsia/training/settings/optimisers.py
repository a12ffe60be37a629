"""Optimisers: how gradients move weights, and what is remembered of them from step to step.

An optimiser of your own is a class with its step, and a function that makes it from settings:

    class Sign(Optimiser):
        def update(self, weights, grads, state, learning_rate):
            torch._foreach_sub_(weights, [grad.sign() * learning_rate for grad in grads])

    @OPTIMISERS.register("sign")
    def sign(decay=0.0):
        return Sign(decay)

Decay is decoupled from the gradient, whichever the optimiser: before each step a weight w goes down
by learning_rate * decay * w. It reaches no moment, and neither pruned nor frozen weights, nor
parameters of one dimension, which biases and those of normalisations are.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from intarsia.errors import RecipeError, shortened
from intarsia.specs import Registry, is_number
from intarsia.training.engines.adam import MOMENTS, adam_step, torch_adam

Values = dict[str, Tensor]
Tensors = Sequence[Tensor]

OPTIMISERS = Registry("optimiser", by_hand=False)
"""Optimisers by name: functions of settings that return an Optimiser.

The trait `by_hand` says that the engines with gradients written out by hand have its step too.
"""


@dataclass
class OptimiserState:
    """What an optimiser remembers: moments of all parameters, by name; its steps, if it counts."""

    moments: dict[str, Values]
    steps: list[Tensor]  # 0-d each: one count, or one for each parameter where torch keeps it so

    @classmethod
    def zeros(cls, moments: Sequence[str], parameters: Values) -> "OptimiserState":
        """Before any step, on the device of the parameters."""
        return cls.begin(moments, parameters, {}, None)

    @classmethod
    def begin(
        cls,
        moments: Sequence[str],
        parameters: Values,
        mask: Mapping[str, Tensor],
        kept: "OptimiserState | None",
    ) -> "OptimiserState":
        """The state at the start of a round: that of the round before, or none."""
        count = 0.0 if kept is None else float(kept.steps[0])
        return cls(
            {
                name: _moments(parameters, mask, None if kept is None else kept.moments[name])
                for name in moments
            },
            [torch.tensor(count, device=p.device) for p in parameters.values()],
        )


def _moments(parameters: Values, mask: Mapping[str, Tensor], kept: Values | None) -> Values:
    if kept is None:
        return {n: torch.zeros_like(p, requires_grad=False) for n, p in parameters.items()}
    values = {n: kept[n].to(p.device).clone() for n, p in parameters.items()}
    for name, own in mask.items():  # a pruned weight must not be moved by old moments
        values[name].masked_fill_(~own.to(values[name].device), 0)
    return values


class Optimiser(ABC):
    """A step on all weights at once."""

    moments: tuple[str, ...] = ()  # what it remembers of a parameter, each of the same shape

    def __init__(self, decay: float = 0.0) -> None:
        self.decay = check_setting("decay", decay)

    @abstractmethod
    def update(
        self, weights: Tensors, grads: Tensors, state: OptimiserState, learning_rate: Tensor
    ) -> None:
        """One step without decay, in place; `learning_rate` is 0-d and lies where the weights do.

        It must not look at values, so that a step can be recorded once and replayed. Gradients of
        pruned weights are 0.
        """

    def reference(self, parameters: Values, state: OptimiserState) -> torch.optim.Optimizer:
        """The same step by torch's own optimiser, for the engine `plain`; its state in ours."""
        return _Unfused(self, parameters, state)


class _Unfused(torch.optim.Optimizer):
    """An optimiser that torch does not have, in its form."""

    def __init__(self, optimiser: Optimiser, parameters: Values, state: OptimiserState) -> None:
        super().__init__(list(parameters.values()), {"lr": 1e-3})
        self.optimiser, self.kept = optimiser, state

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        group = self.param_groups[0]
        weights = group["params"]
        grads = [torch.zeros_like(w) if w.grad is None else w.grad for w in weights]
        learning_rate = torch.tensor(group["lr"], device=weights[0].device)
        self.optimiser.update(weights, grads, self.kept, learning_rate)


class StackedStep:
    """An optimiser's step with decay on parameters that keep their place, and their gradients'.

    Nothing in it looks at values: it can be recorded as part of a CUDA graph.
    """

    def __init__(
        self,
        optimiser: Optimiser,
        parameters: Values,
        grads: Values,
        state: OptimiserState,
        learning_rate: Tensor,
        decayed: Mapping[str, Tensor | None],
    ) -> None:
        """`decayed` has the parameters that decay, with 1 where they do, or None for all of it."""
        self.optimiser, self.state, self.learning_rate = optimiser, state, learning_rate
        self.weights, self.grads = list(parameters.values()), list(grads.values())
        chosen = decayed if optimiser.decay else {}
        self.decayed = [parameters[name] for name in chosen]
        self.masks = list(chosen.values())

    def step(self) -> None:
        """Decay, then the gradient's step; both of the weights as they were."""
        if self.decayed:
            rate = (self.learning_rate * self.optimiser.decay).to(self.decayed[0].dtype)
            less = torch._foreach_mul(self.decayed, rate)
            for part, mask in zip(less, self.masks, strict=True):
                if mask is not None:
                    part.mul_(mask)
            torch._foreach_sub_(self.decayed, less)
        self.optimiser.update(self.weights, self.grads, self.state, self.learning_rate)


class Adam(Optimiser):
    """Adam, with the constants of the paper; see `engines/adam.py` for its formula."""

    moments = MOMENTS

    def update(
        self, weights: Tensors, grads: Tensors, state: OptimiserState, learning_rate: Tensor
    ) -> None:
        adam_step(weights, grads, state.moments, state.steps, learning_rate)

    def reference(self, parameters: Values, state: OptimiserState) -> torch.optim.Optimizer:
        return torch_adam(parameters, state.moments, state.steps)


class Sgd(Optimiser):
    """Stochastic gradient descent with momentum.

    With the gradient g, b <- momentum * b + g; a weight goes down by learning_rate * b, or, by
    Nesterov, by learning_rate * (g + momentum * b).
    """

    def __init__(self, decay: float, momentum: float, nesterov: bool) -> None:
        super().__init__(decay)
        self.momentum = check_setting("momentum", momentum, below=1)
        if not isinstance(nesterov, bool):
            raise RecipeError(
                f"optimiser: nesterov is {shortened(nesterov)}: expected true or false"
            )
        self.moments = ("momentum",) if momentum else ()
        self.nesterov = nesterov and momentum > 0  # without momentum it is the same step

    def update(
        self, weights: Tensors, grads: Tensors, state: OptimiserState, learning_rate: Tensor
    ) -> None:
        torch._fused_sgd_(
            list(weights),
            list(grads),
            [tensor for name in self.moments for tensor in state.moments[name].values()],
            weight_decay=0.0,
            momentum=self.momentum,
            lr=learning_rate,
            dampening=0.0,
            nesterov=self.nesterov,
            maximize=False,
            is_first_step=False,  # momentum begins at 0, which is the same
        )

    def reference(self, parameters: Values, state: OptimiserState) -> torch.optim.Optimizer:
        optimiser = torch.optim.SGD(
            list(parameters.values()),
            lr=1e-3,
            momentum=self.momentum,
            nesterov=self.nesterov,
            foreach=False,
            fused=False,
        )
        for name, parameter in parameters.items() if self.moments else ():
            optimiser.state[parameter]["momentum_buffer"] = state.moments["momentum"][name]
        return optimiser


@OPTIMISERS.register("adam", by_hand=True)
def adam() -> Optimiser:
    """Adam without decay."""
    return Adam()


@OPTIMISERS.register("adamw")
def adamw(decay: float = 0.01) -> Optimiser:
    """Adam with decoupled weight decay."""
    return Adam(decay)


@OPTIMISERS.register("sgd")
def sgd(momentum: float = 0.9, decay: float = 5e-4, nesterov: bool = True) -> Optimiser:
    """Stochastic gradient descent with momentum, by Nesterov or not, and decoupled weight decay."""
    return Sgd(decay, momentum, nesterov)


def check_setting(name: str, value: Any, below: float | None = None) -> float:
    """A number from 0 on, `below` another where one is given; our error otherwise."""
    if not is_number(value) or value < 0 or (below is not None and value >= below):
        upto = "" if below is None else f" to below {below:g}"
        raise RecipeError(
            f"optimiser: {name} is {shortened(value)}: expected a number from 0{upto}"
        )
    return float(value)
