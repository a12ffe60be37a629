"""How long a folder's training took, over all calls that it needed."""

import json
import time
from dataclasses import dataclass
from pathlib import Path

from intarsia.files import write_whole

TIME = "time.json"


@dataclass(frozen=True)
class Spent:
    """Seconds of training, and the calls they were spent in.

    A call that was killed is counted, its seconds are not: they went with it.
    """

    seconds: float
    calls: int


class Clock:
    """Runs while a folder is held; between calls the time so far waits among what is unfinished."""

    def __init__(self, progress: Path) -> None:
        self.note, self.began = progress / TIME, time.monotonic()
        before = spent(progress) or Spent(0.0, 0)
        self.before = Spent(before.seconds, before.calls + 1)
        self._write(self.note, self.before)

    def stop(self) -> None:
        """The call ends, the training does not."""
        self._write(self.note, self._now())

    def finish(self, folder: Path) -> None:
        """All is trained: the time goes to the modules."""
        self._write(folder / TIME, self._now())

    def _now(self) -> Spent:
        return Spent(self.before.seconds + time.monotonic() - self.began, self.before.calls)

    @staticmethod
    def _write(path: Path, spent: Spent) -> None:
        text = json.dumps({"seconds": round(spent.seconds, 3), "calls": spent.calls})
        write_whole(path, text.encode())


def spent(folder: Path) -> Spent | None:
    """What the training in a folder took; None where its time was not kept or cannot be read."""
    try:
        found = json.loads((folder / TIME).read_bytes())
        return Spent(float(found["seconds"]), int(found["calls"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None
