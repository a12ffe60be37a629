"""Compaction for training: rounds after pruning run on the units and inputs that still matter.

Weights that can have no gradient stand still under Adam, so leaving them out is exact: those that
no live unit reads, and those that read an input which is 0 in every sample.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from intarsia.models.wiring import Wiring, live_units, put_units, take_units
from intarsia.training.engines.base import Start
from intarsia.training.job import Job

Values = dict[str, Tensor]


@dataclass(frozen=True)
class Compaction:
    """The units kept of one module, by axis, as indices."""

    wiring: Wiring
    keep: dict[str, Tensor]

    def take(self, values: Values) -> Values:
        return take_units(values, self.wiring, self.keep)

    def put(self, small: Values, base: Values) -> Values:
        return put_units(small, base, self.wiring, self.keep)


def compaction_of(wiring: Wiring, start: Start, in_use: Tensor) -> Compaction:
    """What a module keeps; all of it where its moments live on, since those move every weight."""
    live = live_units(wiring, start.state, {} if start.changes else start.mask)
    if start.optimiser is not None:
        live = {axis: torch.ones_like(units) for axis, units in live.items()}
    else:
        live["input"] = live["input"] & in_use
    for units in live.values():
        if not bool(units.any()):  # a network needs a unit on every axis
            units[0] = True
    return Compaction(wiring, {axis: units.nonzero().flatten() for axis, units in live.items()})


def inputs_in_use(job: Job) -> list[Tensor]:
    """Which inputs each module trains with, on the CPU: those that not every sample has at 0.

    A module from which labels are hidden keeps them all. Products of other shapes round
    otherwise, so its inputs may not be chosen by samples that it is not shown, and those of
    hidden labels, whose entropy validation tells, may use inputs that no shown sample does.
    """
    used = used_inputs(job.x.flatten(1), job.x_validation.flatten(1)).cpu()
    return [torch.ones_like(used) if task.hidden else used for task in job.tasks]


def used_inputs(*samples: Tensor) -> Tensor:
    """Which input features are not 0 in every one of the samples (N, D each)."""
    used = torch.zeros(samples[0].shape[1], dtype=torch.bool, device=samples[0].device)
    for x in samples:
        used |= (x != 0).any(0)
    return used
