"""What an operator learns from one part alone, kept so that the next composition need not."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from threading import Lock

from torch import Tensor, nn

from intarsia.composition.ground import Ground
from intarsia.files import digest_of
from intarsia.models import MODELS

ENTRIES, BYTES = 64, 2**28  # kept at most, by each operator

Found = dict[str, Tensor]


class Kept:
    """Tensors by part and samples, the latest used of them, as many as have room.

    A part is known by its digest, so one that is aligned or scaled first is another. Nothing is
    kept for a stranger's network, whose digest does not say what it computes.
    """

    def __init__(self, entries: int = ENTRIES, size: int = BYTES) -> None:
        self.entries, self.size = entries, size
        self._found: OrderedDict[Hashable, Found] = OrderedDict()
        self._lock = Lock()

    def each(
        self, ground: Ground, inputs: Tensor, find: Callable[[nn.Module], Found]
    ) -> Iterator[Found]:
        """`find(network)` for one part after another; the tensors are not to be written to.

        `find` may look at the network, at `inputs` and at the temperature, and at nothing else.
        """
        samples = digest_of("samples", {"inputs": inputs})
        for part in ground.parts:
            model = part.architecture.model
            key = model and (part.digest, MODELS[model.name], samples)
            found = self._known(key)
            if found is None:
                found = find(part.architecture.network(part.state, part.factory))
                if key is not None:
                    self._keep(key, found)
            yield found

    def __len__(self) -> int:
        return len(self._found)

    def _known(self, key: Hashable) -> Found | None:
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
            return self._found.get(key)

    def _keep(self, key: Hashable, found: Found) -> None:
        if _bytes([found]) > self.size:
            return
        with self._lock:
            self._found[key] = found
            while len(self._found) > self.entries or _bytes(self._found.values()) > self.size:
                self._found.popitem(last=False)


def _bytes(kept: Iterable[Found]) -> int:
    return sum(tensor.nbytes for found in kept for tensor in found.values())
