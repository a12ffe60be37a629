"""Processes as the kernel shows them, for tests that kill some."""

import os
import signal
import time
from pathlib import Path


def title(pid):
    """What a process calls itself, empty once it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").strip("\0 ")
    except OSError:
        return ""


def descendants(pid):
    """Processes that live and come from this one."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue
        if state != "Z":
            parents[int(entry.name)] = int(parent)
    result, last = set(), {pid}
    while last:
        last = {child for child, parent in parents.items() if parent in last}
        result |= last
    return result


def until(result, seconds=150.0):
    """The first true answer of `found`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := result():
            return answer
        time.sleep(0.01)
    raise TimeoutError(f"nothing of the kind in {seconds} s")


def kill_one(wanted, parent):
    """Kill a process that comes from `parent` while it bears a title; None if there is none.

    It is stopped first, so that it cannot turn to other work before it is hit.
    """
    for pid in descendants(parent):
        if title(pid) != wanted:
            continue
        os.kill(pid, signal.SIGSTOP)
        if title(pid) == wanted:
            os.kill(pid, signal.SIGKILL)
            return pid
        os.kill(pid, signal.SIGCONT)
    return None
