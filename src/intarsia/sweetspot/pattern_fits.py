"""Fits: banks of pattern networks trained to draw a picture, all of one layout in one stack.

With a folder a run that was stopped goes on where it was, with the same result.
"""

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from intarsia.errors import (
    DamagedError,
    FileError,
    FileWarning,
    HealthWarning,
    ModelError,
    RecipeError,
    TrainingError,
    shortened,
)
from intarsia.files import digest_of, plain, read_sealed, sealed, stream, write_whole
from intarsia.locks import holder_of, take_lock
from intarsia.modules.file import read, reading, write
from intarsia.process import Advance, progress_bar
from intarsia.specs import check_keys, is_number, seed_numbers
from intarsia.sweetspot.networks import (
    OUTPUTS,
    PatternBank,
    PatternLayout,
    PatternNetwork,
    coordinates,
    forward,
)
from intarsia.sweetspot.pattern_steps import (
    PATTERN_OPTIMISERS,
    SEGMENT,
    PatternStack,
    matrices_of,
    table_of,
)
from intarsia.sweetspot.pictures import check_size, read_picture, rgb
from intarsia.sweetspot.targets import EMBEDDED, load
from intarsia.training.chunk_training import current_device, memory_told
from intarsia.training.job import device_of
from intarsia.training.settings.schedules import SCHEDULES

BANK, CHECKPOINT, LOCK = "bank.safetensors", "part-{}.checkpoint", "lock"
PARTS = "parts.json"
STATE = "intarsia-pattern-fit"
FITTING = "fitting"  # before the bar, until there is a loss to show
CPU_BYTES = 2**27  # of one stack's values on a CPU: a larger stack is no faster
GPU_SHARE = 0.6  # of a GPU's free memory
TRUNCATED = 0.87962566103423978  # standard deviation of a normal distribution cut at 2
POINTS = 64  # of a loss curve, at most
MOST_STEPS = 10**8
SEEDS = 8  # networks, unless it is said how many

Depths = int | Sequence[int]


@dataclass(frozen=True)
class FitSettings:
    """How networks are fitted, but for what they are and where they start.

    steps          of the optimiser
    size           edge of the picture in pixels
    optimiser      adam, muon, or muon(steps=20), ...; see PATTERN_OPTIMISERS
    schedule       of the learning rate, from step to step: constant, cosine, onecycle
    pixels         drawn for each step, none of them twice; None takes all of them
    normalise      divide the gradient of each network by its norm
    """

    steps: int = 3000
    size: int = 64
    optimiser: str = "adam"
    schedule: str = "constant"
    pixels: int | None = None
    normalise: bool = True

    def __post_init__(self) -> None:
        _count("steps", self.steps, MOST_STEPS)
        check_size(self.size)
        if self.pixels is not None:
            _count("pixels", self.pixels, self.size**2)
        if not isinstance(self.normalise, bool):
            raise RecipeError(f"normalise is {shortened(self.normalise)}: expected true or false")
        object.__setattr__(self, "optimiser", str(PATTERN_OPTIMISERS.spec(self.optimiser)))
        object.__setattr__(self, "schedule", str(SCHEDULES.spec(self.schedule)))
        PATTERN_OPTIMISERS.call(PATTERN_OPTIMISERS.spec(self.optimiser))

    def factors(self) -> Tensor:
        """Of the learning rate, step by step."""
        spec = SCHEDULES.spec(self.schedule)
        if spec.name == "constant":
            return torch.ones(self.steps)
        each = (SCHEDULES.call(spec, step=step, steps=self.steps) for step in range(self.steps))
        return torch.tensor(list(each), dtype=torch.float32)


def fit(
    target: Any = EMBEDDED,
    *,
    depth: int | None = None,
    width: int | None = None,
    blocks: Any = None,
    seeds: int | Sequence[int] | None = None,
    learning_rate: float | Sequence[float] = 3e-3,
    masks: Sequence[Tensor] | None = None,
    held: Sequence[Tensor] | None = None,
    start: PatternBank | None = None,
    device: str = "auto",
    graph: bool | None = None,
    at_once: int | None = None,
    out: str | Path | None = None,
    every: float = 30.0,
    progress: bool | None = None,
    **settings: Any,
) -> PatternBank:
    """Train networks of one layout to draw a picture: one for each seed and learning rate.

    `target` is what `load` reads: a name, a file, an array, a network or a genome. `settings` are
    those of FitSettings. The layout is that of `start`; else `depth` with `blocks`, or with so many
    units in the default proportions; what is left out is that of the target where it is a network.
    A network that diverged keeps its last finite weights, with nan for its loss, and is named in
    the report and by a HealthWarning.

    seeds      how many, or which; 8 unless given. Those of `start` are its own
    masks      depth + 1 of (outputs, inputs), or of (K, outputs, inputs): what is False is held
               at 0; those of `start` unless others are given
    held       of the same shapes: what is True stays as `start` has it, and is never trained
    start      networks to train on; learning rates are then one, or one for each
    graph      replay steps as a CUDA graph; None where it works
    at_once    networks in one stack; None as many as memory has room for
    out        a folder to go on from; the bank is written there, too
    every      seconds between two checkpoints
    """
    chosen = _settings(settings)
    if not is_number(every) or every < 0:
        raise RecipeError(f"every is {shortened(every)}: expected seconds from 0 on")
    place = device_of(device)
    pattern = load(target)
    like = pattern if isinstance(pattern, PatternNetwork) else None
    picture = read_picture(pattern.image(chosen.size))
    if start is None:
        layout = _layout(depth, width, blocks, like)
        if held is not None:
            raise RecipeError("held weights stay as `start` has them: give start, too")
        numbers = seed_numbers(SEEDS if seeds is None else seeds)
        begun = initial_bank(layout, numbers, learning_rate)
        rates = [rate for _ in numbers for rate in _rates(learning_rate)]
    else:
        if seeds is not None and len(seed_numbers(seeds)) != len(start):
            raise RecipeError(
                f"start has {len(start)} networks, which seeds {shortened(seeds)} contradict: "
                "leave seeds out"
            )
        begun, rates = start, _rates_of(learning_rate, len(start))
        _check_same(start.layout, depth, width, blocks)
    if masks is not None:
        begun = replace(begun, masks=_stacked(masks, begun, "masks"), losses=None)
    run = _Run(begun, rates, _free(begun, held), picture, pattern.name, chosen, place, graph)
    with _folder(out) as folder:
        if folder is not None and (folder / BANK).exists():
            return _finished(folder, run.key)
        bank = run.train(at_once, folder, every, progress)
        if folder is not None:
            bank.save(folder / BANK)
            for part in [*folder.glob(CHECKPOINT.format("*")), folder / PARTS]:
                part.unlink(missing_ok=True)
    if diverged := bank.report["diverged"]:
        warnings.warn(
            f"{len(diverged)} of {len(bank)} networks diverged, {shortened(diverged)}: their "
            "weights are the last finite ones, their losses nan; lower the learning rate",
            HealthWarning,
            stacklevel=2,
        )
    return bank


def fit_grid(
    target: Any = EMBEDDED,
    *,
    depths: Depths,
    widths: Depths | None = None,
    blocks: Any = None,
    out: str | Path | None = None,
    **settings: Any,
) -> list[PatternBank]:
    """Banks of several layouts, one after another: every depth with every width.

    `settings` are those of `fit`. With a folder each layout has one of its own inside.
    """
    all_widths = [None] if widths is None else _whole_numbers("widths", widths)
    banks = []
    for depth in _whole_numbers("depths", depths):
        for width in all_widths:
            name = f"depth-{depth}" + ("" if width is None else f"-width-{width}")
            own = None if out is None else Path(out) / name
            banks.append(fit(target, depth=depth, width=width, blocks=blocks, out=own, **settings))
    return banks


def initial_bank(
    layout: PatternLayout,
    seeds: int | Sequence[int] = SEEDS,
    learning_rate: float | Sequence[float] = 3e-3,
) -> PatternBank:
    """Networks before training: LeCun's normal distribution, cut at two standard deviations.

    A seed gives the same network in every bank and on every device.
    """
    rates = _rates(learning_rate)
    tables, names = [], []
    for seed in seed_numbers(seeds):
        generator = torch.Generator().manual_seed(stream("pattern network", seed))
        own = [_lecun(shape, generator) for shape in layout.shapes]
        for rate in rates:
            tables.append(own)
            names.append(f"seed-{seed}" + (f"-rate-{rate:g}" if len(rates) > 1 else ""))
    weights = tuple(torch.stack(layer) for layer in zip(*tables, strict=True))
    return PatternBank(layout, weights, names=tuple(names))


@torch.no_grad()
def losses_of(bank: PatternBank, target: Any, size: int = 64) -> tuple[float, ...]:
    """The mean squared error of RGB of each network, over all pixels of a size."""
    if not isinstance(bank, PatternBank):
        raise ModelError(
            f"a {type(bank).__name__} is not a bank: give one, as in PatternBank.of([network])"
        )
    picture = read_picture(load(target).image(size))
    return tuple(_losses(bank.layout, bank.weights, picture, torch.device("cpu")).tolist())


class _Run:
    """One call of `fit`: parts of the bank, one stack after another."""

    def __init__(
        self,
        begun: PatternBank,
        rates: list[float],
        free: Tensor | None,
        picture: Tensor,
        name: str,
        settings: FitSettings,
        device: torch.device,
        graph: bool | None,
    ) -> None:
        self.begun, self.rates, self.free, self.picture = begun, rates, free, picture
        self.settings, self.device, self.name = settings, device, name
        self.graph, self.replayed = graph, False
        tensors = {"picture": picture, "weights": table_of(begun.weights)}
        if free is not None:
            tensors["free"] = free
        layout = [list(map(list, begun.layout.blocks)), begun.layout.depth]
        self.key = digest_of([STATE, layout, rates, asdict(settings)], tensors)

    def train(
        self, at_once: int | None, folder: Path | None, every: float, progress: bool | None
    ) -> PatternBank:
        size = self._part_size(at_once) if folder is None else self._stored_size(at_once, folder)
        began = time.monotonic()
        total = self.settings.steps * len(self.begun)
        parts = []
        with (
            memory_told(),
            current_device(self.device),
            progress_bar(FITTING, total, progress, unit="steps") as advance,
        ):
            for number, first in enumerate(range(0, len(self.begun), size)):
                rows = slice(first, first + size)
                path = None if folder is None else folder / CHECKPOINT.format(number)
                parts.append(self._train_part(rows, path, every, advance))
        weights, sound = (torch.cat(own) for own in list(zip(*parts, strict=True))[:2])
        curves = (curve for _, _, curve in parts)
        curve = [list(chain(*points)) for points in zip(*curves, strict=True)]
        return self._bank(weights, sound, curve, size, time.monotonic() - began)

    def _bank(
        self, table: Tensor, sound: Tensor, curve: list[list[float]], size: int, seconds: float
    ) -> PatternBank:
        layout = self.begun.layout
        matrices = tuple(m.contiguous() for m in matrices_of(layout, table))
        losses = _losses(layout, matrices, self.picture, self.device)
        losses[~sound] = torch.nan
        diverged = [
            n for n, loss in zip(self.begun.names, losses.tolist(), strict=True) if loss != loss
        ]
        marks = _marks(self.settings.steps)
        report = {
            "key": self.key, "target": self.name, **asdict(self.settings),
            "learning_rates": self.rates, "device": self.device.type, "graph": self.replayed,
            "networks_at_once": size, "seconds": round(seconds, 3), "diverged": diverged,
            "curve": {"steps": marks, "losses": plain(curve)},
        }  # fmt: skip
        return replace(self.begun, weights=matrices, losses=tuple(losses.tolist()), report=report)

    def _stored_size(self, at_once: int | None, folder: Path) -> int:
        """The size of parts that this run began with in the folder; memory may differ by now."""
        with suppress(FileNotFoundError, DamagedError):
            stored = read_sealed(folder / PARTS)
            if at_once is None and stored.get("key") == self.key:
                return int(stored["networks"])
        size = self._part_size(at_once)
        if not (folder / CHECKPOINT.format(0)).exists():
            write_whole(folder / PARTS, sealed({"key": self.key, "networks": size}))
        return size

    def _part_size(self, at_once: int | None) -> int:
        if at_once is not None:
            return min(_count("at_once", at_once, 2**20), len(self.begun))
        layout, settings = self.begun.layout, self.settings
        pixels = settings.size**2 if settings.pixels is None else settings.pixels
        floats = (2 * (layout.depth + 1) * layout.width + 64) * pixels + 8 * layout.parameters
        room = CPU_BYTES
        if self.device.type == "cuda":
            room = int(GPU_SHARE * torch.cuda.mem_get_info(self.device)[0])
        most = max(1, room // (4 * floats))
        parts = -(-len(self.begun) // most)
        return -(-len(self.begun) // parts)

    def _stack(self, rows: slice) -> PatternStack:
        settings, to = self.settings, self.device
        table = table_of([w[rows] for w in self.begun.weights]).to(to)
        return PatternStack(
            self.begun.layout,
            table,
            None if self.free is None else self.free[rows].to(to),
            torch.tensor(self.rates[rows], dtype=torch.float32, device=to),
            settings.factors().to(to),
            coordinates(settings.size, to),
            self.picture.reshape(-1, OUTPUTS).T.contiguous().to(to),
            PATTERN_OPTIMISERS.call(PATTERN_OPTIMISERS.spec(settings.optimiser)),
            settings.pixels,
            settings.normalise,
        )

    def _train_part(
        self, rows: slice, path: Path | None, every: float, advance: Advance
    ) -> tuple[Tensor, Tensor, list[list[float]]]:
        """The last finite weights of one stack, whether they are those of the end, and its losses.

        Losses are those at the marks of the curve.
        """
        stack = self._stack(rows)
        state = _Checkpoint(path, f"{self.key} {rows.start} {rows.stop} {self.device.type}", every)
        done, curve = state.load(stack)
        advance(done * len(stack.weights), FITTING)
        self._capture(stack)
        marks = set(_marks(self.settings.steps))
        while done < self.settings.steps:
            if stack.chosen is not None:
                stack.chosen.copy_(_pixels(stack.chosen, done // SEGMENT, stack.inputs.shape[1]))
            steps = min(SEGMENT, self.settings.steps - done)
            stack.run(steps)
            stack.keep_finite()
            done += steps
            losses = stack.loss.cpu()
            if done in marks:
                curve.append([float(f"{loss:.6g}") for loss in losses.tolist()])
            advance(steps * len(losses), f"loss {float(losses.nanmedian()):.2e}")
            state.save(stack, done, curve, last=done == self.settings.steps)
        return stack.finite.cpu(), stack.weights.isfinite().all(1).cpu(), curve

    def _capture(self, stack: PatternStack) -> None:
        """Record a step where that is wanted and works; else every step is launched by itself."""
        if self.graph is False or self.device.type != "cuda":
            if self.graph:
                raise RecipeError(
                    f"graph needs a GPU, and the device is {self.device}: leave graph out"
                )
            return
        try:
            stack.capture()
        except RuntimeError:
            if self.graph:
                raise
        self.replayed = stack.graph is not None


class _Checkpoint:
    """The state of one stack on disk; without a path there is none."""

    def __init__(self, path: Path | None, key: str, every: float) -> None:
        self.path, self.key, self.every = path, key, every
        self.written = time.monotonic()

    def save(self, stack: PatternStack, done: int, curve: list[list[float]], last: bool) -> None:
        """Write it whole, if it is time; at the end in any case."""
        if self.path is None or not (last or time.monotonic() - self.written >= self.every):
            return
        tensors = {name: t.detach().cpu().clone() for name, t in stack.tensors().items()}
        tensors["curve"] = torch.tensor(curve, dtype=torch.float64)
        write(self.path, STATE, {"key": self.key, "done": done}, tensors)
        self.written = time.monotonic()

    def load(self, stack: PatternStack) -> tuple[int, list[list[float]]]:
        """Steps that are done, and losses so far; a damaged file is begun again, and told."""
        if self.path is None or not self.path.exists():
            return 0, []
        try:
            with reading(self.path):
                fields, tensors = read(self.path, STATE)
                curve = tensors.pop("curve").tolist()
                own = {name: (t.shape, t.dtype) for name, t in stack.tensors().items()}
                if fields["key"] != self.key:
                    raise TrainingError("key")
                if {name: (t.shape, t.dtype) for name, t in tensors.items()} != own:
                    raise DamagedError("does not hold the tensors of these networks")
                done = int(fields["done"])
        except FileError as error:
            if isinstance(error.__cause__, TrainingError):
                raise TrainingError(
                    f"{self.path} is of other networks at once, or of another device: go on with "
                    "the same device and at_once, or delete it to train this part again"
                ) from None
            warnings.warn(f"{error}: this part is trained again", FileWarning, stacklevel=2)
            self.path.unlink()
            return 0, []
        stack.load(tensors)
        return done, curve


@contextmanager
def _folder(out: str | Path | None) -> Iterator[Path | None]:
    """The folder of a run, which no other process has meanwhile."""
    if out is None:
        yield None
        return
    folder = Path(out)
    lock = take_lock(folder / LOCK)
    if lock is None:
        raise TrainingError(
            f"another process fits into {folder}, {holder_of(folder / LOCK)}: wait for it or use "
            "another folder"
        )
    try:
        yield folder
    finally:
        lock.release()


def _finished(folder: Path, key: str) -> PatternBank:
    bank = PatternBank.load(folder / BANK)
    if bank.report.get("key") != key:
        raise TrainingError(
            f"{folder} holds networks of other settings, another picture or another start: fit "
            "into a new folder, or delete this one first"
        )
    return bank


def _settings(given: dict[str, Any]) -> FitSettings:
    check_keys("fit", given, list(FitSettings.__dataclass_fields__))
    return FitSettings(**given)


def _layout(
    depth: int | None, width: int | None, blocks: Any, like: PatternNetwork | None
) -> PatternLayout:
    if depth is None:
        if like is None:
            raise RecipeError("fitting a picture needs a depth: hidden layers, as in depth=12")
        depth = like.layout.depth
    if width is not None and blocks is not None:
        raise RecipeError("give width or blocks, not both: blocks say how wide a layer is")
    if width is not None:
        return PatternLayout.of_width(width, depth, *([like.layout.blocks] if like else []))
    if blocks is not None:
        return PatternLayout(blocks, depth)
    if like is not None:
        return PatternLayout(like.layout.blocks, depth)
    return PatternLayout.of_width(22, depth)


def _check_same(layout: PatternLayout, depth: int | None, width: int | None, blocks: Any) -> None:
    """What is said of the layout, beside a start that has one, must be the same."""
    wanted = PatternLayout(blocks, depth or layout.depth) if blocks is not None else layout
    same = depth in (None, layout.depth) and width in (None, layout.width)
    if wanted != layout or not same:
        raise RecipeError(
            f"start has {layout}, which depth, width or blocks contradict: leave them out"
        )


def _free(begun: PatternBank, held: Sequence[Tensor] | None) -> Tensor | None:
    """1 for every weight that is trained and 0 for others, (K, n); None where all are trained."""
    if begun.masks is None and held is None:
        return None
    free = table_of(begun.masks) if begun.masks is not None else None
    if held is not None:
        moves = ~table_of(_stacked(held, begun, "held"))
        free = moves if free is None else free & moves
    assert free is not None
    return free.float()


def _stacked(given: Sequence[Any], bank: PatternBank, what: str) -> tuple[Tensor, ...]:
    """One set of masks for all networks, or one for each."""
    shapes = bank.layout.shapes
    if len(given) != len(shapes):
        raise ModelError(f"{what} has {len(given)} matrices: expected {len(shapes)}")
    stacked = []
    for place, (mask, shape) in enumerate(zip(given, shapes, strict=True)):
        tensor = torch.as_tensor(mask)
        if tensor.dtype != torch.bool or tuple(tensor.shape[-2:]) != shape or tensor.ndim > 3:
            raise ModelError(
                f"{what} {place} is {tuple(tensor.shape)} of {tensor.dtype}: expected {shape} of "
                "true and false"
            )
        if tensor.ndim == 3 and len(tensor) != len(bank):
            raise ModelError(
                f"{what} {place} is for {len(tensor)} networks, and there are {len(bank)}"
            )
        stacked.append(tensor.expand(len(bank), *shape))
    return tuple(stacked)


@torch.no_grad()
def _losses(
    layout: PatternLayout, weights: Sequence[Tensor], picture: Tensor, device: torch.device
) -> Tensor:
    inputs = coordinates(len(picture), device)
    target = picture.reshape(-1, OUTPUTS).T.to(device)
    at_once = max(1, 2**26 // (layout.depth * layout.width * inputs.shape[1]))
    parts = []
    for first in range(0, len(weights[0]), at_once):
        own = [w[first : first + at_once].to(device) for w in weights]
        parts.append((rgb(forward(layout, own, inputs)[0]) - target).square().mean((1, 2)).cpu())
    return torch.cat(parts)


def _lecun(shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Truncated at two standard deviations; the variance is 1 / inputs all the same."""
    normal = torch.distributions.Normal(0.0, 1.0)
    low, high = (float(normal.cdf(torch.tensor(edge))) for edge in (-2.0, 2.0))
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    values = normal.icdf(low + (high - low) * uniform)
    return (values / (TRUNCATED * shape[1] ** 0.5)).float()


def _pixels(like: Tensor, segment: int, count: int) -> Tensor:
    """The pixels of every step of a segment: the same for all networks and on every device."""
    generator = torch.Generator().manual_seed(stream("pattern pixels", segment))
    steps, pixels = like.shape
    return torch.stack([torch.randperm(count, generator=generator)[:pixels] for _ in range(steps)])


def _marks(steps: int) -> list[int]:
    """Steps at which the loss is kept: ends of segments, evenly spaced, and the last."""
    ends = [*range(SEGMENT, steps, SEGMENT), steps]
    every = -(-len(ends) // POINTS)
    return ends[::-1][::every][::-1]


def _rates(given: Any) -> list[float]:
    rates = [given] if is_number(given) else given
    sound = isinstance(rates, list | tuple) and rates
    if not sound or not all(is_number(r) and 0 < r <= 10 for r in rates):
        raise RecipeError(
            f"learning_rate is {shortened(given)}: expected a number above 0 and at most 10, or a "
            "list of them"
        )
    return [float(rate) for rate in rates]


def _rates_of(given: float | Sequence[float], count: int) -> list[float]:
    rates = _rates(given)
    if len(rates) not in (1, count):
        raise RecipeError(
            f"learning_rate has {len(rates)} values and start {count} networks: give one, or one "
            "for each"
        )
    return rates * count if len(rates) == 1 else rates


def _whole_numbers(name: str, given: Any) -> list[int]:
    values = [given] if type(given) is int else given
    sound = isinstance(values, list | tuple | range) and len(values) > 0
    if not sound or not all(type(v) is int and v >= 1 for v in values):
        raise RecipeError(f"{name} is {shortened(given)}: expected whole numbers from 1 on")
    if len(set(values)) < len(values):
        raise RecipeError(f"{name} has a number twice: {shortened(given)}")
    return list(values)


def _count(name: str, value: Any, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise RecipeError(f"{name} is {shortened(value)}: expected a whole number from 1 to {most}")
    return value
