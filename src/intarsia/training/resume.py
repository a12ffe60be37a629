"""Resume: a run's state on disk, written whole, so that a stop at any moment costs minutes at most.

Every random choice depends on seed, round and epoch alone, so a run that goes on from any of its
epochs ends with the same bytes as one that was never stopped.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from intarsia.errors import TrainingError
from intarsia.files import write_whole
from intarsia.pruning import Mask
from intarsia.training.engine import Engine, Slot
from intarsia.training.loop import Standing


class Checkpoint:
    """Where a chunk of a bank keeps its state; without a path it keeps none."""

    def __init__(self, path: Path | None, every: float, key: str = "") -> None:
        """`every` is the least number of seconds between two writes; `key` tells runs apart."""
        self.path, self.every, self.key = path, every, key
        self.written = time.monotonic()

    def save(self, engine: Engine, masks: Sequence[Mask], standing: Standing) -> None:
        """Write the state down if it is time; called at the end of an epoch."""
        if self.path is None or time.monotonic() - self.written < self.every:
            return
        tensors: dict[str, Tensor] = {}
        for k, (slot, mask) in enumerate(zip(engine.slots, masks, strict=True)):
            tensors |= {f"{k}/slot/{n}": t for n, t in slot.tensors().items()}
            tensors |= {f"{k}/mask/{n}": t for n, t in mask.items()}
        note = json.dumps({"key": self.key, "standing": standing.to_json()})
        # one copy each, since slots may be views of one stack
        plain = {n: t.detach().cpu().clone() for n, t in tensors.items()}
        write_whole(self.path, save(plain, {"intarsia-progress": note}))
        self.written = time.monotonic()

    def load(self, modules: int) -> tuple[Standing, list[Mask], list[dict[str, Tensor]]]:
        """The standing, masks and slot tensors to go on from; empty lists for a fresh start."""
        if self.path is None or not self.path.exists():
            return Standing(modules), [], []
        try:
            with safe_open(self.path, "pt") as file:
                note = json.loads((file.metadata() or {})["intarsia-progress"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if note["key"] == self.key:
                standing = Standing.from_json(note["standing"])
                return standing, _part(tensors, "mask", modules), _part(tensors, "slot", modules)
        except (OSError, SafetensorError, LookupError, ValueError, TypeError) as error:
            raise self._damaged(repr(error)) from error
        raise TrainingError(
            f"{self.path} belongs to another recipe, engine or device: "
            "train into a new folder, or delete it to start this part again"
        )

    def restore(self, slots: Sequence[Slot], tensors: Sequence[dict[str, Tensor]]) -> None:
        """Give the slots what `load` found for them, if it found anything."""
        for slot, given in zip(slots, tensors, strict=False):
            own = {name: tensor.shape for name, tensor in slot.tensors().items()}
            if {name: tensor.shape for name, tensor in given.items()} != own:
                raise self._damaged("its tensors are not those of the modules")
            slot.load(given)

    def _damaged(self, why: str) -> TrainingError:
        return TrainingError(
            f"{self.path} cannot be read, {why}: delete it to train this part again"
        )

    def clear(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _part(tensors: dict[str, Tensor], part: str, modules: int) -> list[dict[str, Tensor]]:
    found: list[dict[str, Tensor]] = [{} for _ in range(modules)]
    for name, tensor in tensors.items():
        k, kind, rest = name.split("/", 2)
        if kind == part:
            found[int(k)][rest] = tensor
    return found
