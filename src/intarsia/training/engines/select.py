"""Select: which engine trains a bank, and in how large pieces. The choice is printed."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from intarsia.errors import RecipeError, nearest
from intarsia.models import Lenet, Mlp
from intarsia.models.custom.trial import evaluating, is_foreign
from intarsia.specs import Registry
from intarsia.training.engines.base import Engine
from intarsia.training.engines.grouped import (
    GroupedEngine,
    is_narrow,
    kernels_train,
    ungroupable,
)
from intarsia.training.engines.mlp_cpu.mlp_engine import MlpEngine, threads_each
from intarsia.training.engines.plain import PlainEngine
from intarsia.training.engines.stack import StackEngine
from intarsia.training.engines.streams import StreamEngine
from intarsia.training.job import Job
from intarsia.training.lora import LowRankNetwork
from intarsia.training.settings.optimisers import OPTIMISERS
from intarsia.training.settings.schedules import SCHEDULES
from intarsia.training.tasks import Task

AUTO = "auto"  # what was measured to be fastest
EXECUTORS = ("processes", "ray")  # not engines: where chunks go, to be trained by one
STACK_BELOW = 3_000_000  # parameters; larger networks fill a GPU alone
LARGEST = 128  # batch, outputs and taps that the fused kernels hold in registers
STREAMED = 20  # modules in one graph: enough to fill a GPU, few enough to finish some early
CPU_CHUNK = (10, 256)  # modules at a time on a CPU: few enough to finish some early,
CPU_SIZE = 4_000_000  # and many of them if they are small: so many parameters together

ENGINES = Registry(
    "engine",
    given=("job",),
    unfit=lambda job, patience: None,
    pays=lambda job: None,
    threads=torch.get_num_threads,
    activations=lambda job: 0,
    most=10**6,
)
"""Ways of training a bank by name: functions from a Job to an Engine. `auto` tries them in order.

Traits, functions all but the last:

- `unfit(job, patience)`: why it cannot train a job, and what to use; None if it can;
- `pays(job)`: why `auto` should take it for a job that it can train; None if it should not;
- `threads()`: how many CPU threads share the sums of a module;
- `activations(job)`: bytes on a GPU of what a batch leaves behind, for each module;
- `most`: a number, of modules at a time on a GPU.
"""


@dataclass(frozen=True)
class EngineChoice:
    """An engine by name, and why."""

    engine: str
    why: str

    def __str__(self) -> str:
        return f"{self.engine} ({self.why})"


def choose(job: Job, wanted: str, patience: bool) -> EngineChoice:
    """The engine for a job: what was asked for, or what was measured to be fastest."""
    if wanted == AUTO:
        for name, engine in ENGINES.items():
            why = engine.pays(job)
            if why is not None and engine.unfit(job, patience) is None:
                return EngineChoice(name, why)
    if wanted not in ENGINES:
        raise RecipeError(
            f"unknown engine {wanted!r}: {nearest(wanted, [AUTO, *ENGINES, *EXECUTORS])}"
        )
    reason = ENGINES[wanted].unfit(job, patience)
    if reason is not None:
        raise RecipeError(f"engine {wanted!r} {reason}")
    return EngineChoice(wanted, "as asked")


def threads_of(choice: EngineChoice, job: Job) -> int:
    """How many CPU threads share the sums of a module: with another number they round otherwise."""
    return 1 if job.device.type == "cuda" else int(ENGINES[choice.engine].threads())


def chunks(
    tasks: Sequence[Task], limit: int, whole_seeds: bool, workers: int = 1
) -> list[list[Task]]:
    """Tasks cut into pieces of at most `limit`, so that each of the workers has one.

    A seed stays together where pruning needs it.
    """
    limit = min(limit, -(-len(tasks) // workers))
    pieces: list[list[Task]] = [[]]
    for seed in dict.fromkeys(t.seed for t in tasks):
        group = [t for t in tasks if t.seed == seed]
        step = len(group) if whole_seeds else limit
        for first in range(0, len(group), step):
            part = group[first : first + step]
            if pieces[-1] and len(pieces[-1]) + len(part) > limit:
                pieces.append([])
            pieces[-1] += part
    return pieces


def limit_of(job: Job, choice: EngineChoice) -> int:
    """Modules that fit the memory at a time."""
    size = _parameters(job)
    if job.device.type != "cuda":
        least, most = CPU_CHUNK
        return max(least, torch.get_num_threads(), min(most, CPU_SIZE // max(1, size)))
    # weights, gradients, two moments, checkpoint, mask; and what a batch leaves behind
    state = 4 * size * 6 + 8 * sum(buffer.numel() for buffer in job.network.buffers())
    free, _ = torch.cuda.mem_get_info(job.device)
    engine = ENGINES[choice.engine]
    return max(1, min(engine.most, int(0.7 * free) // (state + engine.activations(job))))


def _parameters(job: Job) -> int:
    return sum(p.numel() for p in job.network.parameters())


# The engines, as `auto` tries them.

FUSED = "gradients by hand, fused kernels, all modules at once"


def _kernels_fit(job: Job) -> bool:
    """Whether the fused kernels, which weigh by label only, hold a batch and its logits."""
    if job.sample_weight is not None:
        return False
    outputs = job.tasks[0].objective.outputs
    return max(job.batch, outputs) <= LARGEST and find_spec("triton") is not None


def _unfit_by_hand(job: Job) -> str | None:
    """What engines with gradients by hand leave out."""
    others = "use 'auto', 'single' or 'stack'"
    if isinstance(job.network, LowRankNetwork):
        return f"trains whole weights, and the changes asked for are of low rank: {others}"
    if job.augment:
        return f"trains on rows as they are, and augment changes them: {others}"
    if job.precision != "float32":
        return f"makes its products in float32, and precision is {job.precision}: {others}"
    if not OPTIMISERS[job.optimiser.name].by_hand:
        return f"has Adam's step alone, and the optimiser is {job.optimiser}: {others}"
    if job.device.type == "cuda" and SCHEDULES[job.schedule.name].by_batch:
        return (
            "has one learning rate for all batches of an epoch on CUDA, and the schedule is "
            f"{job.schedule}: {others}"
        )
    return None


def _unfit_for_mlp(job: Job, patience: bool) -> str | None:
    if reason := _unfit_by_hand(job):
        return reason
    if not isinstance(job.network, Mlp) or job.wiring is None:
        return "trains mlp networks only: use 'auto', 'single' or 'stack'"
    if job.device.type == "cuda" and not (len(job.network.layers) > 1 and _kernels_fit(job)):
        return (
            "needs Triton on CUDA, a hidden layer, a batch of at most "
            f"{LARGEST}, at most {LARGEST} outputs and no sample_weight: use 'auto' or 'stack'"
        )
    return None


@ENGINES.register(
    "mlp",
    unfit=_unfit_for_mlp,
    pays=lambda job: (
        FUSED if job.device.type == "cuda" else "gradients by hand, one module per core"
    ),
    threads=threads_each,  # its activations count among the state
)
def mlp(job: Job) -> Engine:
    """MLPs, with gradients written out by hand."""
    if job.device.type == "cuda":
        from intarsia.training.engines.cuda.cuda_mlp import CudaMlpEngine

        return CudaMlpEngine(job)
    return MlpEngine(job)


def _unfit_for_lenet(job: Job, patience: bool) -> str | None:
    if reason := _unfit_by_hand(job):
        return reason
    if not isinstance(job.network, Lenet):
        return "trains lenet networks only: use 'auto' or 'stack'"
    taps = 25 * job.x.shape[1] + 1
    if not (job.device.type == "cuda" and taps <= LARGEST and _kernels_fit(job)):
        return (
            f"needs CUDA with Triton, a batch of at most {LARGEST}, at most {LARGEST} outputs, "
            "at most 5 colours and no sample_weight: use 'auto', 'single' or 'stack'"
        )
    return None


def _activations_of_lenet(job: Job) -> int:
    assert isinstance(job.network, Lenet)
    # pooled outputs twice and the winners' bytes; a picture, also twice, if seeds differ
    pixels = prod(job.x.shape[1:])
    return max(64, job.batch) * (9 * job.network.fc1.in_features + 8 * pixels)


@ENGINES.register(
    "lenet", unfit=_unfit_for_lenet, pays=lambda job: FUSED, activations=_activations_of_lenet
)
def lenet(job: Job) -> Engine:
    """LeNets on a GPU."""
    from intarsia.training.engines.cuda.cuda_lenet import CudaLenetEngine

    return CudaLenetEngine(job)


def in_step(patience: bool) -> str | None:
    """Why modules that train in step cannot do with patience."""
    if not patience:
        return None
    return "trains its modules in step, so patience cannot stop one of them: use 'auto' or 'single'"


def _convolves(job: Job) -> bool:
    """Whether a bank of convolutional networks is to be trained on a GPU."""
    if len(job.tasks) < 2 or job.device.type != "cuda" or isinstance(job.network, Lenet):
        return False
    return any(isinstance(layer, nn.Conv2d) for layer in job.network.modules())


def _unfit_for_groups(job: Job, patience: bool) -> str | None:
    if reason := in_step(patience) or _unfit_for_low_rank(job):
        return reason
    if (reason := ungroupable(job)) is None:
        return None
    return (
        "lays the layers of several networks side by side, and this network does not run so "
        f"({reason}): use 'auto', 'streams' or 'single'"
    )


def _unfit_for_low_rank(job: Job) -> str | None:
    if not isinstance(job.network, LowRankNetwork):
        return None
    return (
        "takes the layers of networks as they are, and the changes asked for are of low rank: use "
        "'auto', 'stack' or 'single'"
    )


def _activations(job: Job) -> int:
    """Bytes that the layers of a module give for a batch, as they stay for the way back."""
    numbers = 0

    def count(layer: nn.Module, given: Any, made: Any) -> None:
        nonlocal numbers
        numbers += made.numel() if isinstance(made, torch.Tensor) else 0

    layers = [layer for layer in job.network.modules() if not list(layer.children())]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    try:
        with evaluating(job.network), torch.no_grad():
            job.network(job.inputs(torch.arange(1, device=job.device), None))
    finally:
        for hook in hooks:
            hook.remove()
    size = 4 if job.precision == "float32" else 2
    return 2 * size * job.batch * numbers


COMPILED: dict[str, Any] = {"activations": _activations, "most": STREAMED}  # in one graph


def _groups_pay(job: Job) -> str | None:
    if not (_convolves(job) and kernels_train(job) and is_narrow(job.network)):
        return None
    return "narrow layers of all modules at once, by kernels of our own"


@ENGINES.register("grouped", unfit=_unfit_for_groups, pays=_groups_pay, **COMPILED)
def grouped(job: Job) -> Engine:
    """Convolutional networks side by side as one network, in one graph."""
    return GroupedEngine(job, width=len(job.tasks))


@ENGINES.register(
    "streams",
    unfit=lambda job, patience: in_step(patience),
    pays=lambda job: "modules on streams of one graph" if _convolves(job) else None,
    **COMPILED,
)
def streams(job: Job) -> Engine:
    """Any network, modules with the same batches side by side, each on a CUDA stream."""
    return StreamEngine(job, width=len(job.tasks))


@ENGINES.register(
    "compiled",
    unfit=lambda job, patience: in_step(patience) or _unfit_for_low_rank(job),
    **COMPILED,
)
def compiled(job: Job) -> Engine:
    """As `grouped` or `streams` with torch.compile: faster steps after a minute of compiling."""
    side_by_side = is_narrow(job.network) and ungroupable(job) is None
    kind = GroupedEngine if side_by_side else StreamEngine
    return kind(job, width=len(job.tasks), compiled=True)


def _unfit_for_stack(job: Job, patience: bool) -> str | None:
    if reason := in_step(patience):
        return reason
    norms = any(isinstance(layer, _BatchNorm) for layer in job.network.modules())
    if job.precision != "float32" and norms:
        return "does not run BatchNorm in bf16: use 'auto', 'grouped' or 'single'"
    reason = unstackable(job)
    if reason is not None:
        return (
            "runs modules side by side by torch.vmap, which cannot run this "
            f"network ({reason}): use 'auto' or 'single'"
        )
    return None


def unstackable(job: Job) -> str | None:
    """Why torch.vmap cannot run the network, tried out where the network is a custom one."""
    network = job.network
    if not is_foreign(network.network if isinstance(network, LowRankNetwork) else network):
        return None
    tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    stacked = {name: torch.stack([t.detach().clone()] * 2) for name, t in tensors.items()}
    x = job.inputs(torch.arange(2, device=job.device), None)
    try:
        with evaluating(network):
            network.train()
            torch.vmap(lambda one: functional_call(network, one, (x,)), randomness="different")(
                stacked
            )
    except Exception as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0][:200]
    return None


def _stack_pays(job: Job) -> str | None:
    size = _parameters(job)
    if job.device.type != "cuda" or size >= STACK_BELOW or len(job.tasks) < 2:
        return None
    return f"{size:,} parameters per module leave a GPU idle alone"


@ENGINES.register(
    "stack",
    unfit=_unfit_for_stack,
    pays=_stack_pays,
    activations=lambda job: 4 * job.batch * 64 * prod(job.x.shape[1:]),
)
def stack(job: Job) -> Engine:
    """Any network, modules with the same batches and learning rate as one stack."""
    return StackEngine(job, width=len(job.tasks))


@ENGINES.register(
    "single",
    pays=lambda job: (
        "one module fills the GPU"
        if job.device.type == "cuda"
        else "a module's state stays in the cache"
    ),
)
def single(job: Job) -> Engine:
    """Any network, one module after another."""
    return StackEngine(job, width=1)


@ENGINES.register("plain")
def plain(job: Job) -> Engine:
    """Any network, by the book: the oracle that tests compare the others with."""
    return PlainEngine(job)
