"""Adam: its constants, its state for a module or a stack of modules, and its step on the CPU.

With the gradient g, m <- b1 m + (1 - b1) g and v <- b2 v + (1 - b2) g^2; at step n a weight goes
down by learning_rate * m / (1 - b1^n) / (sqrt(v / (1 - b2^n)) + epsilon). The kernels for CUDA have
the same step in Triton.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Values = dict[str, Tensor]

BETAS = (0.9, 0.999)  # as in the paper
EPSILON = 1e-8


@dataclass
class AdamState:
    """The moments of all parameters, and how many steps were taken."""

    first: Values
    second: Values
    steps: list[Tensor]  # 0-d each: one count, or one for each parameter where torch keeps it so

    @classmethod
    def begin(
        cls, parameters: Values, mask: Mapping[str, Tensor], kept: "AdamState | None"
    ) -> "AdamState":
        """The state at the start of a round: that of the round before, or none."""
        count = 0.0 if kept is None else float(kept.steps[0])
        return cls(
            _moments(parameters, mask, None if kept is None else kept.first),
            _moments(parameters, mask, None if kept is None else kept.second),
            [torch.tensor(count, device=p.device) for p in parameters.values()],
        )


def _moments(parameters: Values, mask: Mapping[str, Tensor], kept: Values | None) -> Values:
    if kept is None:
        return {n: torch.zeros_like(p, requires_grad=False) for n, p in parameters.items()}
    values = {n: kept[n].to(p.device).clone() for n, p in parameters.items()}
    for name, own in mask.items():  # a pruned weight must not be moved by old moments
        values[name].masked_fill_(~own.to(values[name].device), 0)
    return values


def torch_adam(
    parameters: Values, state: AdamState, *, fused: bool, learning_rate: float | Tensor = 1e-3
) -> torch.optim.Adam:
    """torch's Adam over these parameters, with its state in our tensors."""
    optimiser = torch.optim.Adam(
        list(parameters.values()),
        lr=learning_rate,
        betas=BETAS,
        eps=EPSILON,
        fused=fused,
        foreach=False,
        capturable=fused and state.steps[0].is_cuda,
    )
    for (name, parameter), step in zip(parameters.items(), state.steps, strict=True):
        optimiser.state[parameter] = {
            "step": step,
            "exp_avg": state.first[name],
            "exp_avg_sq": state.second[name],
        }
    return optimiser


def adam_step(
    parameters: Values, grads: Sequence[Tensor], state: AdamState, learning_rate: float
) -> None:
    """One fused step on all parameters, which share one count of steps."""
    state.steps[0].add_(1)
    torch._fused_adam_(
        list(parameters.values()),
        list(grads),
        list(state.first.values()),
        list(state.second.values()),
        [],
        state.steps * len(grads),
        lr=learning_rate,
        beta1=BETAS[0],
        beta2=BETAS[1],
        weight_decay=0.0,
        eps=EPSILON,
        amsgrad=False,
        maximize=False,
    )
