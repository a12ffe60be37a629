"""Choose: which engine trains a bank, and in how large pieces. The choice is printed."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod

import torch
from torch.func import functional_call

from intarsia.errors import RecipeError, nearest
from intarsia.models import Lenet, Mlp
from intarsia.models.custom.trial import evaluating, is_foreign
from intarsia.training.engines.base import Engine
from intarsia.training.engines.mlp_cpu.mlp_engine import MlpEngine, threads_each
from intarsia.training.engines.plain import PlainEngine
from intarsia.training.engines.stack import StackEngine
from intarsia.training.job import Job
from intarsia.training.tasks import Task

ENGINES = ("auto", "plain", "single", "stack", "mlp", "lenet")
STACK_BELOW = 3_000_000  # parameters; larger networks fill a GPU alone
LARGEST = 128  # batch, outputs and taps that the fused kernels hold in registers
CPU_CHUNK = (10, 256)  # modules at a time on a CPU: few enough to finish some early,
CPU_SIZE = 4_000_000  # and many of them if they are small: so many parameters together


@dataclass(frozen=True)
class Choice:
    """An engine by name, and why."""

    engine: str
    why: str

    def __str__(self) -> str:
        return f"{self.engine} ({self.why})"


def choose(job: Job, wanted: str, patience: bool) -> Choice:
    """The engine for a job: what was asked for, or what was measured to be fastest."""
    if wanted != "auto":
        _check(job, wanted, patience)
        return Choice(wanted, "as asked")
    cuda = job.device.type == "cuda"
    fused = "gradients by hand, fused kernels, all modules at once"
    if _is_mlp(job) and not cuda:
        return Choice("mlp", "gradients by hand, one module per core")
    if _is_mlp(job) and _mlp_fits(job):
        return Choice("mlp", fused)
    if isinstance(job.network, Lenet) and cuda and _lenet_fits(job):
        return Choice("lenet", fused)
    size = sum(p.numel() for p in job.network.parameters())
    several = len(job.tasks) > 1 and not patience
    if cuda and size < STACK_BELOW and several and unstackable(job) is None:
        return Choice("stack", f"{size:,} parameters a module leave a GPU idle alone")
    why = "a module's state stays in the cache" if not cuda else "one module fills the GPU"
    return Choice("single", why)


def _check(job: Job, wanted: str, patience: bool) -> None:
    """Raise RecipeError unless the engine that was asked for can train the job."""
    if wanted not in ENGINES:
        raise RecipeError(f"unknown engine {wanted!r}: {nearest(wanted, ENGINES)}")
    cuda = job.device.type == "cuda"
    if wanted == "mlp" and not _is_mlp(job):
        raise RecipeError("engine 'mlp' trains mlp networks only: use 'auto', 'single' or 'stack'")
    if wanted == "mlp" and cuda and not _mlp_fits(job):
        raise RecipeError(
            "engine 'mlp' needs Triton on CUDA, a hidden layer, a batch of at most "
            f"{LARGEST}, at most {LARGEST} outputs and no sample_weight: use 'auto' or 'stack'"
        )
    if wanted == "lenet" and not isinstance(job.network, Lenet):
        raise RecipeError("engine 'lenet' trains lenet networks only: use 'auto' or 'stack'")
    if wanted == "lenet" and not (cuda and _lenet_fits(job)):
        raise RecipeError(
            f"engine 'lenet' needs CUDA with Triton, a batch of at most {LARGEST}, at most "
            f"{LARGEST} outputs, at most 5 colours and no sample_weight: use 'auto', 'single' or "
            "'stack'"
        )
    if wanted == "stack" and patience:
        raise RecipeError(
            "engine 'stack' trains its modules in step, so patience cannot stop one of them: "
            "use 'auto' or 'single'"
        )
    reason = unstackable(job) if wanted == "stack" else None
    if reason is not None:
        raise RecipeError(
            f"engine 'stack' runs modules side by side by torch.vmap, which cannot run this "
            f"network ({reason}): use 'auto' or 'single'"
        )


def unstackable(job: Job) -> str | None:
    """Why torch.vmap cannot run the network, tried out where the network is a stranger's."""
    if not is_foreign(job.network):
        return None
    network = job.network
    tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    stacked = {name: torch.stack([t.detach().clone()] * 2) for name, t in tensors.items()}
    x = job.x[:2]
    try:
        with evaluating(network):
            network.train()
            torch.vmap(lambda one: functional_call(network, one, (x,)), randomness="different")(
                stacked
            )
    except Exception as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0][:200]
    return None


def make_engine(choice: Choice, job: Job) -> Engine:
    if choice.engine == "plain":
        return PlainEngine(job)
    if choice.engine == "single":
        return StackEngine(job, width=1)
    if choice.engine == "stack":
        return StackEngine(job, width=len(job.tasks))
    if choice.engine == "lenet":
        from intarsia.training.engines.cuda.cuda_lenet import CudaLenetEngine

        return CudaLenetEngine(job)
    if job.device.type == "cuda":
        from intarsia.training.engines.cuda.cuda_mlp import CudaMlpEngine

        return CudaMlpEngine(job)
    return MlpEngine(job)


def threads_of(choice: Choice, job: Job) -> int:
    """How many CPU threads share the sums of a module: with another number they round otherwise."""
    if job.device.type == "cuda":
        return 1
    return threads_each() if choice.engine == "mlp" else torch.get_num_threads()


def chunks(tasks: Sequence[Task], job: Job, choice: Choice, whole_seeds: bool) -> list[list[Task]]:
    """Tasks cut into pieces that fit the memory; a seed stays together where pruning needs it."""
    limit = _limit(job, choice)
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


def _limit(job: Job, choice: Choice) -> int:
    size = sum(p.numel() for p in job.network.parameters())
    if job.device.type != "cuda":
        least, most = CPU_CHUNK
        return max(least, torch.get_num_threads(), min(most, CPU_SIZE // max(1, size)))
    # weights, gradients, two moments, checkpoint, mask; and what a batch leaves behind
    state = 4 * size * 6
    free, _ = torch.cuda.mem_get_info(job.device)
    return max(1, int(0.7 * free) // (state + _left_behind(job, choice)))


def _left_behind(job: Job, choice: Choice) -> int:
    """Bytes of a module's activations, which the mlp engines count among its state."""
    pixels = prod(job.x.shape[1:])
    if choice.engine == "stack":
        return 4 * job.batch * 64 * pixels
    if choice.engine == "lenet":
        assert isinstance(job.network, Lenet)
        # pooled outputs twice and the winners' bytes; a picture, also twice, if seeds differ
        return max(64, job.batch) * (9 * job.network.fc1.in_features + 8 * pixels)
    return 0


def _is_mlp(job: Job) -> bool:
    return isinstance(job.network, Mlp) and job.wiring is not None


def _mlp_fits(job: Job) -> bool:
    return len(job.network.layers) > 1 and _kernels_fit(job)  # type: ignore[arg-type]


def _lenet_fits(job: Job) -> bool:
    return 25 * job.x.shape[1] + 1 <= LARGEST and _kernels_fit(job)


def _kernels_fit(job: Job) -> bool:
    """Whether the fused kernels, which weigh by label only, hold a batch and its logits."""
    if job.sample_weight is not None:
        return False
    outputs = job.tasks[0].objective.outputs
    return max(job.batch, outputs) <= LARGEST and find_spec("triton") is not None
