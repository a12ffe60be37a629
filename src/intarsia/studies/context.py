"""Study context: what a study works on: data loaded once, plans, trained banks of a store."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from intarsia.data import Data, load_data
from intarsia.modules import Bank
from intarsia.studies.plans import Plan, plan_of
from intarsia.training import Recipe
from intarsia.training.job import device_of

KEPT = 4  # banks in memory: cells that follow one another often ask for the same


Load = Callable[[str, str], Data]


class Banks(Protocol):
    """Where trained banks are found."""

    def bank(self, plan: Plan) -> Bank: ...


class StudyContext:
    """Data, plans and banks for the cells of a study, on one device."""

    def __init__(self, banks: Banks, device: str = "auto", load: Load | None = None) -> None:
        """`load` brings data by name and preset, where they do not come from this machine."""
        self.device: torch.device = device_of(device)
        self._banks = banks
        self._load = load or load_preset
        self._data: dict[tuple[str, str], Data] = {}
        self._kept: OrderedDict[str, Bank] = OrderedDict()

    def data(self, name: str, preset: str = "paper") -> Data:
        """A data set, loaded as the preset wants it."""
        if (name, preset) not in self._data:
            data = self._load(name, preset)
            self._data[name, preset] = data
            self._data.setdefault((data.name, preset), data)  # recipes know a file by this name
        return self._data[name, preset]

    @property
    def loaded(self) -> Mapping[tuple[str, str], Data]:
        """The data sets that are here, by name and preset."""
        return self._data

    def give(self, data: Data, preset: str = "paper") -> None:
        """Use data that are already here under their name."""
        self._data[data.name, preset] = data

    def plan(
        self,
        data: str,
        model: str,
        sets: Sequence[Sequence[str]] | None,
        seed: int,
        *,
        preset: str = "paper",
        objective: str | Mapping[str, Any] = "me",
        pruned: bool = True,
        **recipe: Any,
    ) -> Plan:
        """The bank of one seed with a module for each set, or for each class; see `plan_of`."""
        there = self.data(data, preset)
        return plan_of(
            there,
            model,
            sets or [(name,) for name in there.catalogue],
            seed,
            preset=preset,
            objective=objective,
            pruned=pruned,
            recipe=recipe,
        )

    def bank(self, plan: Plan, pruned: bool = True) -> Bank:
        """A trained bank, pruned or as its first round left it."""
        if plan.key not in self._kept:
            self._kept[plan.key] = self._banks.bank(plan)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(plan.key)
        bank = self._kept[plan.key]
        return bank if pruned or not bank.rounds else bank.rounds[0]

    def forget(self) -> None:
        """Let go of the banks in memory."""
        self._kept.clear()


def load_preset(name: str, preset: str, download: bool = True) -> Data:
    """Data as a preset wants them."""
    options = Recipe(preset=preset, data=name).resolve().data_options
    return load_data(name, **options, download=download)


def load_here(name: str, preset: str) -> Data:
    """Data of this machine: nothing is fetched to show what is finished."""
    return load_preset(name, preset, download=False)
