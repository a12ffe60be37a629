"""Adam: its constants and its step.

With the gradient g, m <- b1 m + (1 - b1) g and v <- b2 v + (1 - b2) g^2; at step n a weight goes
down by learning_rate * m / (1 - b1^n) / (sqrt(v / (1 - b2^n)) + epsilon). The kernels for CUDA have
the same step in Triton.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Values = dict[str, Tensor]

BETAS = (0.9, 0.999)  # as in the paper
EPSILON = 1e-8
MOMENTS = ("first", "second")  # m and v


def torch_adam(
    parameters: Values, moments: Mapping[str, Values], steps: Sequence[Tensor]
) -> torch.optim.Adam:
    """torch's Adam over these parameters, unfused, with its state in our tensors."""
    optimiser = torch.optim.Adam(
        list(parameters.values()), lr=1e-3, betas=BETAS, eps=EPSILON, fused=False, foreach=False
    )
    for (name, parameter), step in zip(parameters.items(), steps, strict=True):
        optimiser.state[parameter] = {
            "step": step,
            "exp_avg": moments["first"][name],
            "exp_avg_sq": moments["second"][name],
        }
    return optimiser


def adam_step(
    weights: Sequence[Tensor],
    grads: Sequence[Tensor],
    moments: Mapping[str, Values],
    steps: list[Tensor],
    learning_rate: float | Tensor,
) -> None:
    """One fused step on all weights; they share one count of steps, or have one each."""
    torch._foreach_add_(steps, 1)
    torch._fused_adam_(
        list(weights),
        list(grads),
        list(moments["first"].values()),
        list(moments["second"].values()),
        [],
        steps * (len(grads) // len(steps)),
        lr=learning_rate,
        beta1=BETAS[0],
        beta2=BETAS[1],
        weight_decay=0.0,
        eps=EPSILON,
        amsgrad=False,
        maximize=False,
    )
