"""Workers: processes forked from this one that train modules in memory they share with it.

Threads would meet at Python's lock at every small product; processes run one module per core at
full speed. What they change lies in an `Arena`; everything else they see as it was at the fork.
"""

import mmap
import multiprocessing
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
from torch import Tensor

from intarsia.errors import TrainingError
from intarsia.limits import out_of_memory

ALIGN = 64  # bytes, a cache line
WORTH = 2e9  # multiplications below which more threads or processes cost more than they save


@contextmanager
def few_threads(work: float) -> Iterator[None]:
    """One thread, and so no forked process, where `work` multiplications are too few to share."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if work < WORTH else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Arena:
    """Memory that forked processes share, handed out as tensors."""

    def __init__(self, size: int) -> None:
        self.memory = mmap.mmap(-1, max(size, mmap.PAGESIZE))
        self.used = 0

    @staticmethod
    def room(tensors: Iterable[Tensor]) -> int:
        """Bytes that copies of these tensors take."""
        return sum(_up(t.numel() * t.element_size()) for t in tensors)

    def copy(self, tensor: Tensor) -> Tensor:
        """A copy of the tensor that lies in the arena."""
        if not tensor.numel():
            return tensor.clone()
        place = torch.frombuffer(
            self.memory, dtype=tensor.dtype, count=tensor.numel(), offset=self.used
        )
        self.used += _up(tensor.numel() * tensor.element_size())
        return place.view(tensor.shape).copy_(tensor)


class Workers:
    """A few forked processes that answer calls of one function."""

    def __init__(self, count: int, serve: Callable[..., Any]) -> None:
        context = multiprocessing.get_context("fork")
        self.pipes: list[Connection] = []
        self.processes = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, serve, os.getpid()), daemon=True)
            with warnings.catch_warnings():
                # The child touches no lock of another thread: it computes, answers and ends.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    @staticmethod
    def possible() -> bool:
        """Whether this process may fork workers."""
        return sys.platform == "linux" and not multiprocessing.current_process().daemon

    def map(self, calls: list[tuple[Any, ...]]) -> list[Any]:
        """Answers to all calls, in their order; each worker takes the next call when it is free."""
        answers: list[Any] = [None] * len(calls)
        waiting = list(enumerate(calls))[::-1]
        busy: dict[Any, int] = {}
        for pipe in self.pipes[: len(calls)]:
            busy[pipe] = self._send(pipe, waiting)
        while busy:
            for ready in wait(list(busy)):
                answers[busy.pop(ready)] = self._receive(ready)
                if waiting:
                    busy[ready] = self._send(ready, waiting)
        return answers

    def close(self) -> None:
        """End the processes; safe to call twice."""
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.kill()
            process.join()
            process.close()
        self.pipes, self.processes = [], []

    def _send(self, pipe: Any, waiting: list[tuple[int, tuple[Any, ...]]]) -> int:
        number, call = waiting.pop()
        try:
            pipe.send(call)
        except OSError:
            raise _gone() from None
        return number

    def _receive(self, pipe: Any) -> Any:
        try:
            fine, answer = pipe.recv()
        except (EOFError, OSError):
            raise _gone() from None
        if not fine and answer is None:
            raise MemoryError
        if not fine:
            raise RuntimeError(f"a training process failed:\n{answer}")
        return answer


def _work(pipe: Connection, serve: Callable[..., Any], parent: int) -> None:
    """A worker's life: answer calls until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    _close_files(but=pipe.fileno())
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # moments of weights at rest shrink into numbers that cost dear
    try:
        while True:
            while not pipe.poll(1.0):
                if os.getppid() != parent:
                    os._exit(0)
            call = pipe.recv()
            try:
                answer = (True, serve(*call))
            except Exception as error:
                answer = (False, None if out_of_memory(error) else traceback.format_exc())
            pipe.send(answer)
    finally:
        os._exit(0)  # without the parent's exit handlers and buffers


def _close_files(but: int) -> None:
    """Let go of the parent's files: a lock held here would outlive it."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != but:
            try:
                os.close(int(name))
            except OSError:
                continue  # the listing's own handle


def _gone() -> TrainingError:
    return TrainingError(
        "a training process ended by itself, perhaps for want of memory: "
        "train fewer classes or seeds at a time, or call torch.set_num_threads(1) first"
    )


def _up(size: int) -> int:
    return -(-size // ALIGN) * ALIGN
