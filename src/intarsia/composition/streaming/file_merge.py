"""merge_files: models that are files, joined tensor by tensor without being in memory.

The arithmetic is in float64, whatever the files hold. A tensor is read, joined and written before
the next one, piece by piece unless an operator must see all of it. Where it needs a little of the
whole (sums, products, the largest entries), its pieces are looked at before they are joined.
"""

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from intarsia.composition.merge_context import BY_NAME, MergeContext
from intarsia.composition.merge_memory import COPIES
from intarsia.composition.operators import OPERATORS
from intarsia.composition.operators.pieces import ROOM
from intarsia.composition.operators.registry import (
    is_entrywise,
    is_tensorwise,
    joins_pieces,
    searched,
    takes_rows,
)
from intarsia.composition.streaming.shards import (
    MergeFolder,
    Shard,
    ShardTensor,
    check_folder_name,
    check_manifest,
    cut_shards,
)
from intarsia.composition.streaming.tensor_files import (
    CODES,
    OpenFiles,
    StoredTensor,
    TensorFiles,
)
from intarsia.errors import (
    CompositionError,
    LimitError,
    RecipeError,
    WiringError,
    nearest,
    shortened,
)
from intarsia.files import plain
from intarsia.limits import account, allocating, bytes_text, current, machine_memory, read_count
from intarsia.models.wiring import Wiring
from intarsia.modules.architecture import Plan, TensorSpec
from intarsia.modules.bases.base_weights import Base
from intarsia.modules.statistics import is_finite, joint_buffer, sibling_name
from intarsia.process import BYTES, Advance, progress_bar
from intarsia.specs import Spec

# Entries that are joined at once: as float64 they stay in a core's cache, and torch joins no more
# in one thread, so that threads can take a piece each.
PIECE = 2**15
BATCH = 8  # pieces that a thread takes at once
RETAINED = 2**24  # bytes
SHARD_SIZE = "4GiB"
STATISTICS = ("running_mean", "running_var")
COUNT = "num_batches_tracked"
FLOATS = {"float64", "float32", "float16", "bfloat16"}

Models = Sequence[str | Path] | Mapping[str, str | Path]


@dataclass(frozen=True)
class FileMerge:
    """What was merged: the folder, its files, and how much is in them."""

    folder: Path
    operator: Spec
    operators: int  # that differ, if only in their settings, from tensor to tensor
    models: tuple[str, ...]
    files: tuple[str, ...]
    tensors: int
    parameters: int
    nbytes: int
    kept: int  # shards that an earlier run had finished

    def as_dict(self) -> dict[str, Any]:
        """Plain values, to be printed."""
        return {
            "folder": str(self.folder),
            "operator": str(self.operator),
            "operators": self.operators,
            "models": list(self.models),
            "files": list(self.files),
            "tensors": self.tensors,
            "parameters": self.parameters,
            "bytes": self.nbytes,
            "kept_files": self.kept,
        }


@account()
def merge_files(
    models: Models,
    out: str | Path,
    operator: str | Mapping[str, Any] | Spec = "mean",
    *,
    by_tensor: Mapping[str, str | Mapping[str, Any] | Spec] | None = None,
    base: str | Path | None = None,
    dtype: str | None = None,
    shard_size: int | str = SHARD_SIZE,
    progress: bool | None = None,
) -> FileMerge:
    """Join models that are safetensors files or folders of shards, and write a folder of shards.

    A model is known by the name of its file or folder, or by the key of a mapping: that is what
    `weights` of an operator are given by. All have the tensors of the first, in name and shape.
    With a `base` its changes are joined, and added to it. Operators that look at one tensor at a
    time can be used, see `is_tensorwise`. Those that join pieces, all but tsvm and iso_c of ours,
    take little memory whatever the sizes; for the others the largest tensor of every model is in
    memory, and what the operator makes of them. `by_tensor` gives tensors, by name, an operator of
    their own, or the same one with other settings.

    Tensors keep the type that they have in the base, or in the first model by name, unless `dtype`
    is given. Statistics of a BatchNorm are joined as by `compose`; other integers must be the same
    in all models. Config and tokenizer are copied from the base, or from the first model given.

    A run that was killed goes on where it was: shards that are finished are kept if their digests
    are those in the folder's manifest, and the models have kept their sizes, times and headers, and
    a sample of every tensor.
    """
    check_folder_name(Path(out))
    job = _Job.of(models, operator, by_tensor or {}, base, dtype)
    shards = cut_shards(job.planned(), read_count("shard_size", shard_size))
    with (
        allocating("merging files"),
        MergeFolder(Path(out), job.known_by(shards), shards) as folder,
    ):
        kept = len(folder.written)
        with progress_bar("merging", job.nbytes(shards), progress, unit=BYTES) as advance:
            for shard in shards:
                if shard.name in folder.written:
                    advance(sum(t.nbytes for t in shard.tensors))
                else:
                    folder.write(shard, job.pieces(shard, advance))
        job.check_unchanged()
        folder.finish(job.source, job.config_dtype)
    return FileMerge(
        folder=Path(out),
        operator=job.operator,
        operators=len(job.joined_alike),
        models=tuple(job.models),
        files=tuple(shard.name for shard in shards),
        tensors=len(job.first.tensors),
        parameters=sum(t.entries for t in job.first.tensors.values()),
        nbytes=job.nbytes(shards),
        kept=kept,
    )


@dataclass(frozen=True, eq=False)
class FileContext(MergeContext):
    """What an operator sees of files: one tensor, or a piece of it, of every part and the base.

    There are neither samples nor a wiring; of the parts the names alone are known.
    """

    parts: tuple[Any, ...]
    entries: Plan = field(default_factory=dict)
    start: int = 0
    origin_state: Mapping[str, Tensor] | None = None

    @property
    def plan(self) -> Plan:
        return self.entries

    @property
    def first_entry(self) -> int:
        return self.start

    @property
    def nbytes(self) -> int:
        """The bytes of the parts' tensors as float32, by which operators say what they take."""
        sizes = (4 * torch.Size(entry.shape).numel() for entry in self.entries.values())
        return len(self.parts) * sum(sizes)

    @cached_property
    def wiring(self) -> Wiring:
        raise WiringError("files of tensors do not say which axes are the same units")

    @cached_property
    def base(self) -> Base | None:
        return None if self.origin_state is None else Base(self.origin_state, copy=False)

    def kept(self, name: str) -> list[Tensor]:
        everything = torch.ones((), dtype=torch.bool).expand(self.entries[name].shape)
        return [everything for _ in self.parts]

    def origin(self) -> Mapping[str, Tensor]:
        if self.origin_state is None:
            raise CompositionError(
                "the operator measures changes from an origin, and files do not know theirs: give "
                "base=..., the model that they were trained from, or base='zero' to the operator"
            )
        return self.origin_state


@dataclass(frozen=True)
class _Part:
    name: str


class _Workers:
    """Threads that take a few pieces each; what they make comes in order, and not far ahead."""

    def __init__(self) -> None:
        # glibc gives pages of blocks back that are larger than any that was freed before: without
        # this one, those of every piece, to ask for them again
        torch.empty(RETAINED, dtype=torch.uint8)
        self.pool = ThreadPoolExecutor(torch.get_num_threads())
        self.files = OpenFiles()

    def __enter__(self) -> "_Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(cancel_futures=True)
        self.files.close()

    @staticmethod
    def ahead() -> int:
        """How many batches are in memory at most."""
        return torch.get_num_threads() + 1

    def map(self, function: Callable[[int], Any], starts: Sequence[int]) -> Iterator[Any]:
        """What the function makes of each start; of few starts every thread has its share."""

        def run(some: Sequence[int]) -> list[Any]:
            return [function(start) for start in some]

        size = min(BATCH, max(1, len(starts) // self.ahead()))
        pending: deque[Future[list[Any]]] = deque()
        for place in range(0, len(starts), size):
            pending.append(self.pool.submit(run, starts[place : place + size]))
            if len(pending) == self.ahead():
                yield from pending.popleft().result()
        while pending:
            yield from pending.popleft().result()


class _FileTensor:
    """One tensor of all models, read in pieces; the TensorPieces of operators."""

    def __init__(self, job: "_Job", name: str, workers: _Workers) -> None:
        self.job, self.name, self.workers = job, name, workers
        self.operator = job.operator_of(name)
        self.stored = job.first.tensors[name]
        self.entries, self.first = self.stored.entries, job.starts[name]
        base = None if _takes_weights(self.operator) else job.base
        every = [*job.models.values(), *([] if base is None else [base])]
        held = workers.files.hold([files.tensors[name] for files in every])
        self.models = list(zip(every, held, strict=True))
        self.base = None if base is None else self.models.pop()  # what is taken off, and added
        self.step = _step(self.stored, self.operator)
        self.by_rows = takes_rows(self.operator)
        self.starts = range(0, self.entries, self.step)
        self.finite = False  # whether all pieces were looked at, and found to be so

    @property
    def count(self) -> int:
        return len(self.starts)

    def each(
        self, look: Callable[[list[Tensor], int], Any], every: int = 1
    ) -> Iterator[tuple[int, Any]]:
        def seen(start: int) -> tuple[int, Any]:
            return start, look(self.read(start)[1], start)

        yield from self.workers.map(seen, self.starts[::every])
        self.finite = self.finite or every == 1

    def read(self, start: int) -> tuple[Tensor | None, list[Tensor]]:
        """What is added to the joined piece, and what the models have: changes, or weights."""
        count = min(self.step, self.entries - start)
        origin = None if self.base is None else self._read(*self.base, start, count)
        changes = []
        for files, stored in self.models:
            own = self._read(files, stored, start, count)
            changes.append(own if origin is None else own.sub_(origin))
        if self.by_rows:
            rows = self.stored.shape[0] if len(self.stored.shape) > 1 else 1
            changes = [change.view(-1, self.entries // rows) for change in changes]
            origin = None if origin is None else origin.view(changes[0].shape)
        return origin, changes

    def _read(self, files: TensorFiles, stored: StoredTensor, start: int, count: int) -> Tensor:
        entries = stored.read(start, count)
        return entries.double() if self.finite else self.job.finite(entries, files, self.name)

    def joined_entries(self, start: int) -> Tensor:
        """A piece as an operator makes it that looks at no other; or the whole of the tensor."""
        count = min(self.step, self.entries - start)
        shape = self.stored.shape if count == self.entries else (count,)
        job, name = self.job, self.name
        origin = None
        if self.base is not None:
            origin = self._read(*self.base, start, count).reshape(shape)
        states = []
        for files, stored in self.models:
            own = self._read(files, stored, start, count).reshape(shape)
            states.append({name: own if origin is None else own.sub_(origin)})
        context = FileContext(
            parts=job.parts,
            entries={name: TensorSpec(shape, torch.float64, learned=True)},
            start=self.first + start,
            origin_state=None if origin is None else {name: origin},
        )
        how = OPERATORS[self.operator.name]
        joined: Tensor = how(states, context, **self.operator.arguments)[name]
        return joined if origin is None else joined + origin


@dataclass(frozen=True)
class _Job:
    """A merge whose files and settings were found to fit."""

    models: Mapping[str, TensorFiles]  # sorted by name
    base: TensorFiles | None
    operator: Spec
    by_tensor: Mapping[str, Spec]
    dtype: torch.dtype | None
    source: Path | None  # of config and tokenizer

    @classmethod
    def of(
        cls,
        models: Models,
        operator: str | Mapping[str, Any] | Spec,
        by_tensor: Mapping[str, str | Mapping[str, Any] | Spec],
        base: str | Path | None,
        dtype: str | None,
    ) -> "_Job":
        named = _named(models)
        spec = _checked_operator(operator, named)
        if not isinstance(by_tensor, Mapping):
            raise RecipeError(
                f"by_tensor is {shortened(by_tensor)}: expected a mapping of tensors to operators, "
                "as in {'lm_head.weight': 'mean'}"
            )
        own = {name: OPERATORS.spec(each) for name, each in by_tensor.items()}
        if dtype is not None and dtype not in FLOATS:
            raise RecipeError(f"dtype is {shortened(dtype)}: {nearest(dtype, FLOATS)}")
        files = {name: TensorFiles(path) for name, path in named.items()}
        start = None if base is None else TensorFiles(base)
        first = start or next(iter(files.values()))
        for each in (*files.values(), *([] if start is None else [start])):
            check_manifest(each)
            _check_fits(each, first)
        learned = {name for name, tensor in first.tensors.items() if is_learned(name, tensor)}
        for name in own:
            if name not in learned:
                why = "no operator joins its numbers" if name in first.tensors else "there is none"
                raise RecipeError(
                    f"by_tensor has the tensor {shortened(name)}, and {why}: "
                    f"{nearest(name, learned)}"
                )
        job = cls(
            models=dict(sorted(files.items())),
            base=start,
            operator=spec,
            by_tensor=own,
            dtype=None if dtype is None else getattr(torch, dtype),
            source=first.folder,
        )
        for operator, _ in job.joined_alike:
            job._try_operator(_checked_operator(operator, named))
        job._count_memory()
        return job

    @property
    def first(self) -> TensorFiles:
        """Whose names, shapes and types the output has."""
        return self.base or next(iter(self.models.values()))

    def operator_of(self, name: str) -> Spec:
        """How a tensor is joined."""
        return self.by_tensor.get(name, self.operator)

    @cached_property
    def joined_alike(self) -> list[tuple[Spec, list[str]]]:
        """The operators, and the tensors that each of them joins, the common one first."""
        alike = {str(self.operator): (self.operator, list[str]())}
        for name, tensor in self.first.tensors.items():
            if is_learned(name, tensor):
                spec = self.operator_of(name)
                alike.setdefault(str(spec), (spec, []))[1].append(name)
        return [each for each in alike.values() if each[1]] or [(self.operator, [])]

    @cached_property
    def starts(self) -> dict[str, int]:
        """How many entries come before those of each tensor, in the order of names."""
        starts, end = {}, 0
        for name, tensor in self.first.tensors.items():
            starts[name] = end
            end += tensor.entries if is_learned(name, tensor) else 0
        return starts

    def planned(self) -> list[ShardTensor]:
        """The tensors of the output."""
        planned = []
        for name, tensor in self.first.tensors.items():
            dtype = self.dtype if self.dtype and tensor.dtype.is_floating_point else tensor.dtype
            planned.append(ShardTensor(name, tensor.shape, dtype, tensor.entries * dtype.itemsize))
        return planned

    def nbytes(self, shards: Sequence[Shard]) -> int:
        return sum(tensor.nbytes for shard in shards for tensor in shard.tensors)

    def known_by(self, shards: Sequence[Shard]) -> dict[str, Any]:
        """What makes two merges the same, as plain values."""
        shown = {name: files.headers for name, files in self.models.items()}
        others = [
            {"operator": {"name": spec.name, **spec.arguments}, "tensors": names}
            for spec, names in self.joined_alike
            if spec != self.operator
        ]
        result: dict[str, Any] = plain(
            {
                "operator": {"name": self.operator.name, **self.operator.arguments},
                **({"by_tensor": others} if others else {}),
                "dtype": None if self.dtype is None else CODES[self.dtype],
                "models": shown,
                "base": None if self.base is None else self.base.headers,
                "shards": {s.name: hashlib.sha256(s.header()).hexdigest() for s in shards},
            }
        )
        return result

    def pieces(self, shard: Shard, advance: Advance) -> Iterator[Tensor]:
        """The tensors of a shard one after another, flat, in pieces as small as may be."""
        with _Workers() as workers:
            for tensor in shard.tensors:
                for piece in self._made(tensor, workers):
                    yield piece
                    advance(piece.nbytes)

    def _made(self, tensor: ShardTensor, workers: "_Workers") -> Iterable[Tensor]:
        """The pieces of one tensor."""
        name, stored = tensor.name, self.first.tensors[tensor.name]
        if not stored.entries:
            return ()
        if is_learned(name, stored):
            return self._joined(tensor, workers)
        if _is_statistic(name, stored):
            return (self._checked(name, self._statistic(name).to(tensor.dtype)),)
        return self._integers(name)

    def _joined(self, tensor: ShardTensor, workers: "_Workers") -> Iterator[Tensor]:
        """A parameter as the operator makes it, in pieces of the type that is written."""
        files = _FileTensor(self, tensor.name, workers)
        operator = files.operator
        how, settings = OPERATORS[operator.name], OPERATORS.settings(operator)
        join: Callable[[int], Tensor] = files.joined_entries
        if joins_pieces(operator):
            of_piece = how.pieces(files, FileContext(self.parts), settings)

            def join(start: int) -> Tensor:
                origin, changes = files.read(start)
                joined: Tensor = of_piece(changes, start)
                return joined if origin is None else joined.add_(origin)

        def written(start: int) -> Tensor:
            return self._checked(tensor.name, join(start).reshape(-1).to(tensor.dtype))

        return workers.map(written, files.starts)

    @cached_property
    def parts(self) -> tuple[Any, ...]:
        """What an operator knows of the models: their names."""
        return tuple(map(_Part, self.models))

    def finite(self, entries: Tensor, files: TensorFiles, name: str) -> Tensor:
        """Entries that were read of a model's tensor, in float64; NaN and infinity are refused."""
        if not is_finite(entries):
            models = {id(own): model for model, own in self.models.items()}
            raise CompositionError(
                f"tensor {name!r} of model {models.get(id(files), 'base')!r} holds values that are "
                f"not finite: get {files.path} again, or leave it out"
            )
        return entries.double()

    @property
    def config_dtype(self) -> torch.dtype | None:
        """What the copied config is to say: the type chosen, or that of the tensors if it differs.

        The config may come from another model than the types.
        """
        source = next((f for f in self.models.values() if f.folder == self.source), self.first)
        theirs, ours = _float_types(source), _float_types(self.first)
        return (
            next(iter(ours)) if not self.dtype and theirs != ours and len(ours) == 1 else self.dtype
        )

    def check_unchanged(self) -> None:
        """Refuse to finish where a file of a model was written to meanwhile."""
        for files in (*self.models.values(), *([self.base] if self.base else [])):
            files.check_unchanged()

    def _statistic(self, name: str) -> Tensor:
        """That of a normalisation, by the rule of all operators."""
        gain = sibling_name(name, "weight")
        names = [name, *([gain] if gain in self.first.tensors else [])]
        states = [{key: self._whole(files, key) for key in names} for files in self.models.values()]
        return joint_buffer(name, states, [1.0] * len(states)).reshape(-1)

    def _integers(self, name: str) -> Iterator[Tensor]:
        """Those that all models have; a CompositionError where they differ."""
        stored = {model: files.tensors[name] for model, files in self.models.items()}
        (first, one), *others = stored.items()
        for start in range(0, one.entries, PIECE):
            count = min(PIECE, one.entries - start)
            integers = one.read(start, count)
            for model, other in others:
                if not torch.equal(other.read(start, count), integers):
                    raise CompositionError(
                        f"tensor {name!r} holds integers that differ, in {first!r} and {model!r}: "
                        "they cannot be joined; leave one of the models out"
                    )
            yield integers

    def _whole(self, files: TensorFiles, name: str) -> Tensor:
        """A model's tensor; numbers in float64."""
        stored = files.tensors[name]
        read = stored.read().reshape(stored.shape)
        return self.finite(read, files, name) if read.is_floating_point() else read

    def _checked(self, name: str, joined: Tensor) -> Tensor:
        """What is to be written; NaN and infinity are refused."""
        if is_finite(joined):
            return joined
        raise CompositionError(
            f"tensor {name!r} joined holds values that {joined.dtype} has no room for: choose "
            "another dtype, such as float32"
        )

    def _try_operator(self, operator: Spec) -> None:
        """Join zeros, so that settings that cannot be used fail before anything is written."""
        name, zero = "zero", torch.zeros(1, dtype=torch.float64)
        context = FileContext(
            parts=tuple(map(_Part, self.models)),
            entries={name: TensorSpec((1,), torch.float64, learned=True)},
            origin_state=None if self.base is None else {name: zero},
        )
        states = [{name: zero.clone()} for _ in self.models]
        OPERATORS[operator.name](states, context, **operator.arguments)

    def _count_memory(self) -> None:
        """Refuse what takes more than the limits allow, or than the machine has."""
        current().check("parts", len(self.models), "{} models are to be joined")
        floats = [(n, t) for n, t in self.first.tensors.items() if t.dtype.is_floating_point]
        if not floats:
            return  # integers are compared piece by piece
        largest: dict[str, str] = {}  # by operator
        for name, _ in sorted(floats, key=lambda item: -item[1].entries):
            largest.setdefault(str(self.operator_of(name)), name)
        name, passing = max(
            ((name, self._passing(name)) for name in largest.values()), key=lambda item: item[1]
        )
        what = f"joining tensor {name!r} of {len(self.models)} models takes {{}} of memory"
        with account() as taken:
            for files in (*self.models.values(), *([self.base] if self.base else [])):
                taken.read(files.nbytes)
            taken.take(what, 0, passing=passing)
        if 0 < machine_memory() < passing:
            raise LimitError(
                f"{what.replace('{}', bytes_text(passing))}, and this machine has "
                f"{bytes_text(machine_memory())}: take an operator that looks at single entries, "
                "such as task_arithmetic, or a larger machine"
            )

    def _passing(self, name: str) -> int:
        """The bytes that are taken while a tensor is joined."""
        tensor, operator = self.first.tensors[name], self.operator_of(name)
        how, whole = OPERATORS[operator.name], tensor.entries
        learned = is_learned(name, tensor)
        entries = min(_step(tensor, operator), whole) if learned else whole
        spec = TensorSpec((entries,), torch.float64, learned=True)
        context = FileContext(self.parts, entries={name: spec})
        states = 8 * entries * (len(self.models) + 3)  # with base, answer and what is written
        passing = states + (how.memory(context) if how.memory else COPIES * context.nbytes)
        if entries < whole:
            # one piece in the making by every thread, and the others made
            looks = joins_pieces(operator) and not is_entrywise(operator)
            made = 8 * entries * (len(self.models) if looks else 1) * _Workers.ahead() * BATCH
            passing = passing * torch.get_num_threads() + made
            if looks:
                # what a search for the largest entries holds, and sorts
                passing += 24 * len(self.models) * min(whole, max(ROOM, whole // 16))
        return int(passing)


def _named(models: Models) -> dict[str, Path]:
    if isinstance(models, str | Path) or not isinstance(models, Sequence | Mapping) or not models:
        raise RecipeError(
            f"models is {shortened(models)}: expected paths of files or folders, or a mapping of "
            "names to them"
        )
    given = models.items() if isinstance(models, Mapping) else ((None, path) for path in models)
    named: dict[str, Path] = {}
    for key, place in given:
        if not isinstance(place, str | os.PathLike):
            raise RecipeError(f"models has {shortened(place)}: expected paths of files or folders")
        path = Path(place)
        name = path.stem if path.suffix == ".safetensors" else path.resolve().name
        name = name if key is None else str(key)
        if name in named:
            raise RecipeError(
                f"two models are called {name!r}, {named[name]} and {path}: give a mapping with "
                "a name of its own for each"
            )
        named[name] = path
    return named


def _checked_operator(given: str | Mapping[str, Any] | Spec, named: Mapping[str, Path]) -> Spec:
    spec = OPERATORS.spec(given)
    how = OPERATORS[spec.name]
    if not is_tensorwise(spec):
        ways = sorted(name for name in OPERATORS if OPERATORS[name].tensorwise)
        raise RecipeError(
            f"{spec} does not join one tensor after another, as files are: take one of "
            f"{', '.join(ways)}; ties with preset='mergekit'"
        )
    for key in searched(spec):
        raise RecipeError(f"{spec}: a {key} is found on samples, which files have not: give one")
    if how.most is not None and len(named) > how.most:
        raise RecipeError(f"{spec.name} joins at most {how.most} models, got {len(named)}")
    for key in BY_NAME:
        by_name = spec.arguments.get(key)
        for name in by_name if isinstance(by_name, Mapping) else ():
            if name not in named:
                raise RecipeError(f"{key} has {shortened(name)}: {nearest(name, named)}")
    return spec


def _check_fits(files: TensorFiles, first: TensorFiles) -> None:
    """The same names and shapes; floating numbers where the other has them, else one type."""
    for one, other in ((files, first), (first, files)):
        if missing := other.tensors.keys() - one.tensors.keys():
            raise CompositionError(
                f"{one.path} lacks the tensor {min(missing)!r}, which {other.path} has: they are "
                "not of one network"
            )
    for name, tensor in files.tensors.items():
        expected = first.tensors[name]
        floats = tensor.dtype.is_floating_point and expected.dtype.is_floating_point
        same = floats or tensor.dtype == expected.dtype
        if tensor.shape != expected.shape or not same:
            raise CompositionError(
                f"tensor {name!r} is {tensor.shape} {tensor.dtype} in {files.path} and "
                f"{expected.shape} {expected.dtype} in {first.path}: they are not of one network"
            )


def is_learned(name: str, tensor: StoredTensor) -> bool:
    """Whether a tensor is joined by the operator: all numbers but running statistics."""
    return tensor.dtype.is_floating_point and name.rpartition(".")[2] not in STATISTICS


def _is_statistic(name: str, tensor: StoredTensor) -> bool:
    """Whether a tensor that is not learned is one of a normalisation's."""
    return tensor.dtype.is_floating_point or name.rpartition(".")[2] == COUNT


def _takes_weights(operator: Spec) -> bool:
    """Whether an operator joins the weights themselves and not their changes of the base."""
    return OPERATORS.settings(operator).get("base") == "zero"


def _step(tensor: StoredTensor, operator: Spec) -> int:
    """How many entries are joined at once."""
    if is_entrywise(operator):
        return PIECE
    if OPERATORS[operator.name].pieces is None:
        return tensor.entries
    if not takes_rows(operator):
        return PIECE
    row = max(1, prod(tensor.shape[1:]) if len(tensor.shape) > 1 else tensor.entries)
    return row * max(1, PIECE // row)


def _float_types(files: TensorFiles) -> set[torch.dtype]:
    return {t.dtype for t in files.tensors.values() if t.dtype.is_floating_point}
