"""Study context: what a study works on: data loaded once, plans, trained banks of a store."""

import contextlib
import copy
import json
import shutil
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from intarsia.data import Data, check_options, load_data
from intarsia.modules import Bank
from intarsia.studies.cells import DATA_OPTIONS, Cell
from intarsia.studies.plans import Plan, plan_of
from intarsia.studies.store import BankPlan, Store
from intarsia.training import Recipe
from intarsia.training.job import device_of

KEPT = 4  # banks in memory: cells that follow one another often ask for the same
REMEMBERED = 4  # of what cells compute from data, such as its samples on the device

T = TypeVar("T")

Options = Mapping[str, Any]
Load = Callable[[str, str, Options], Data]
Loaded = tuple[str, str, str]  # name, preset, and further options as text


class StudyContext:
    """Data, plans and banks for the cells of a study, on one device."""

    def __init__(self, store: Store, device: str = "auto", load: Load | None = None) -> None:
        """`load` brings data by name, preset and options, if they are not of this machine."""
        self.device: torch.device = device_of(device)
        self._store = store
        self._load = load or load_preset
        self._data: dict[Loaded, Data] = {}
        self._options: Options = {}
        self._kept: OrderedDict[str, Bank] = OrderedDict()
        self._remembered: OrderedDict[str, Any] = OrderedDict()
        self.keeps_banks = True  # whether banks that cells make themselves go to the store
        self.stop: Callable[[], bool] | None = None  # whether their training is to stop now

    def data(self, name: str, preset: str = "paper") -> Data:
        """A data set, loaded as the preset wants it and with the options of this context."""
        options = options_text(self._options)
        if (name, preset, options) not in self._data:
            self._data[name, preset, options] = self._load(name, preset, self._options)
        return self._data[name, preset, options]

    def data_of(self, plan: Plan) -> Data:
        """The data that a plan was made for, whatever they were loaded with."""
        for data in self._data.values():
            if data.digest == plan.data_digest:
                return data
        recipe = plan.recipe
        return self.loading(recipe.data_options).data(recipe.data, recipe.preset)

    def of_cell(self, cell: Cell) -> "StudyContext":
        """The context in which a cell is measured: data are loaded as its settings say."""
        return self.loading(cell.settings.get(DATA_OPTIONS, {}))

    def loading(self, options: Options) -> "StudyContext":
        """The same context, in which data are loaded with these options on top of the preset's."""
        other = copy.copy(self)
        other._options = options
        return other

    @property
    def loaded(self) -> Mapping[Loaded, Data]:
        """The data sets that are here."""
        return self._data

    def give(self, data: Data, preset: str = "paper") -> None:
        """Use data that are already here under their name."""
        self._data[data.name, preset, options_text({})] = data

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
            self._kept[plan.key] = self._store.bank(plan)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(plan.key)
        bank = self._kept[plan.key]
        return bank if pruned or not bank.rounds else bank.rounds[0]

    def bank_or_made(self, plan: BankPlan, make: Callable[[], Bank]) -> Bank:
        """A bank that cells make themselves: from the store, or made once and kept there."""

        def clear() -> None:
            if (work := self.work_folder(plan)) is not None:
                shutil.rmtree(work, ignore_errors=True)  # its checkpoints, which have served

        return self._store.bank_or_made(
            plan, make, keep=self.keeps_banks, stop=self.stop, after=clear
        )

    def work_folder(self, plan: BankPlan) -> Path | None:
        """Where training that may be stopped keeps its checkpoints; None where it may not."""
        if self.stop is None:
            return None
        return self._store.work_folder([plan], self.device.type)

    def shared_folder(self, key: str) -> contextlib.AbstractContextManager[Path]:
        """A folder of the store for what several cells start from, ours until the block ends.

        Who comes first fills it, others wait meanwhile and read it.
        """
        return self._store.fit_folder(key, self.device.type)

    def remembered(self, key: str, make: Callable[[], T]) -> T:
        """What was made under this key, or is made now; the few used last are kept in memory."""
        if key not in self._remembered:
            self._remembered[key] = make()
            while len(self._remembered) > REMEMBERED:
                self._remembered.popitem(last=False)
        self._remembered.move_to_end(key)
        result: T = self._remembered[key]
        return result

    def forget(self) -> None:
        """Let go of the banks in memory."""
        self._kept.clear()


def load_preset(name: str, preset: str, options: Options, download: bool = True) -> Data:
    """Data as a preset wants them, with further options on top."""
    asked = Recipe(preset=preset, data=name, data_options=options).resolve().data_options
    check_options(asked)
    return load_data(name, **{**asked, "download": download})


def load_here(name: str, preset: str, options: Options) -> Data:
    """Data of this machine: nothing is fetched to show what is finished."""
    return load_preset(name, preset, options, download=False)


def options_text(options: Options) -> str:
    """Options as one line, the same for equal ones."""
    return json.dumps(options, sort_keys=True)
