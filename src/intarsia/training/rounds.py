"""Rounds: train, prune, rewind; the survivors train once more."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from intarsia.files import stream
from intarsia.pruning import PRUNINGS, Group, Mask, normalisations, round_fraction
from intarsia.pruning.group import check_masks
from intarsia.training.engines.base import Engine, Start
from intarsia.training.loop import RoundProgress, Watch, run_round
from intarsia.training.run_folder import Checkpoint
from intarsia.training.settings.optimisers import OptimiserState
from intarsia.training.settings.recipe import Recipe

Values = dict[str, Tensor]


@dataclass(frozen=True)
class Outcome:
    """One module at the end of a round; state is None if it diverged."""

    state: Values | None
    mask: Mask
    scores: dict[str, float] | None


def train_rounds(
    engine: Engine,
    origins: Sequence[Values],
    recipe: Recipe,
    checkpoint: Checkpoint,
    watch: Watch,
    after_round: Callable[[int, list[Outcome]], None],
) -> None:
    """Iterative pruning with rewinding to the origins, taken up from where the checkpoint is.

    `after_round` gets the modules of every round: the first are unpruned, the last are the result.
    """
    tasks = engine.job.tasks
    assert recipe.rounds is not None
    progress, masks, tensors = checkpoint.load(len(tasks))
    if not masks:
        masks = [engine.job.first_mask() for _ in tasks]
        pruning = recipe.pruning or "magnitude"
        _check_pruning(engine, recipe, origins[0])
        if PRUNINGS.entry(pruning).before_training(PRUNINGS.settings(pruning)):
            masks = _prune(engine, recipe, origins, origins, masks, progress)
    moments: list[OptimiserState | None] = [None] * len(tasks)
    while True:
        last = progress.round == recipe.rounds
        keeps_moments = bool(recipe.keep_moments and progress.round)
        starts = [
            _start(engine, *given, keeps_moments)
            for given in zip(origins, masks, moments, strict=True)
        ]
        epochs = recipe.epochs if last else recipe.pruning_epochs
        assert epochs is not None
        engine.begin(starts, epochs)
        checkpoint.restore(engine.slots, tensors)
        tensors = []
        save = partial(checkpoint.save, engine, masks)
        run_round(engine, recipe, progress, epochs, watch, save)
        outcomes = [
            Outcome(None if progress.diverged[k] else engine.best(k), mask, progress.best[k])
            for k, mask in enumerate(masks)
        ]
        after_round(progress.round, outcomes)
        if last:
            return
        trained = [o.state or origin for o, origin in zip(outcomes, origins, strict=True)]
        masks = _prune(engine, recipe, trained, origins, masks, progress)
        if recipe.keep_moments:
            moments = [engine.moments(k) for k in range(len(tasks))]
        progress.new_round(progress.round + 1)


def _check_pruning(engine: Engine, recipe: Recipe, origin: Values) -> None:
    """What pruning will find after a round, it says before."""
    wiring, seeds = engine.job.wiring, Counter(task.seed for task in engine.job.tasks)
    if wiring is None or not recipe.rounds:
        return
    learned = {name: wiring[name] for name in engine.parameter_names}
    PRUNINGS.entry(recipe.pruning or "magnitude").check(learned, origin, max(seeds.values()))


def rewound(origin: Values, mask: Mask) -> Values:
    """The origin with its pruned entries at exactly 0."""
    return {
        n: torch.where(mask[n], t, torch.zeros_like(t)) if n in mask else t.clone()
        for n, t in origin.items()
    }


def _start(
    engine: Engine, origin: Values, mask: Mask, moments: OptimiserState | None, keeps_moments: bool
) -> Start:
    changes = engine.job.changes
    state = rewound(origin, {} if changes else mask)
    if not keeps_moments:
        return Start(state, mask, changes=changes)
    if moments is None:  # taken up in the middle of a round: the checkpoint brings the moments
        moments = OptimiserState.zeros(engine.optimiser.moments, state)
    return Start(state, mask, moments, changes)


def _prune(
    engine: Engine,
    recipe: Recipe,
    states: Sequence[Values],
    origins: Sequence[Values],
    masks: Sequence[Mask],
    progress: RoundProgress,
) -> list[Mask]:
    """New masks of the modules that have not diverged; the others keep theirs.

    Of changes, what is looked at is the change.
    """
    assert recipe.pruning is not None and recipe.sparsity is not None and recipe.rounds is not None
    alive = [k for k in range(len(masks)) if not progress.diverged[k]]
    tasks = [engine.job.tasks[k] for k in alive]
    device, wiring, names = engine.job.device, engine.job.wiring, engine.parameter_names

    def seen(k: int) -> Values:
        own = {n: states[k][n].to(device) for n in names}
        if not engine.job.changes:
            return own
        return {n: tensor - origins[k][n].to(device) for n, tensor in own.items()}

    pruning = PRUNINGS.spec(recipe.pruning)
    group = Group(
        states=[seen(k) for k in alive],
        masks=[_moved(masks[k], device) for k in alive],
        wiring=wiring and {n: wiring[n] for n in names},
        fraction=round_fraction(recipe.sparsity, recipe.rounds),
        seeds=[t.seed for t in tasks],
        streams=[stream("prune", t.seed, *t.rewarded, progress.round) for t in tasks],
        spared=normalisations(engine.job.network),
        activations=[engine.job.activations(engine.job.tasks[k], states[k]) for k in alive]
        if PRUNINGS.entry(pruning).needs_samples
        else (),
    )
    pruned = PRUNINGS.call(pruning, group=group) if alive else []
    check_masks(pruning.name, pruned, group)
    after = list(masks)
    for k, mask in zip(alive, pruned, strict=True):
        after[k] = _moved(mask, torch.device("cpu"))
    return after


def _moved(values: Values, device: torch.device) -> Values:
    return {n: t.to(device) for n, t in values.items()}
