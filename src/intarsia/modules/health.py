"""Health: whether a module or composition is dead, undertrained or inconsistent; what to do.

dead: it passes nothing on. A layer has no weight other than 0, or no way of such weights leads
from the inputs to the outputs, or the answers are the same for every sample.

undertrained: it is hardly above chance on its validation samples (training/validation_health.py).

inconsistent: it does not do what was asked of it, such as being unsure of what it is not rewarded
for, or its parts do not fit together.

What weights alone show is computed whenever it is asked for; what needs samples is measured where
the samples are, in training, and is kept in the provenance.
"""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

from intarsia.errors import FileError, HealthWarning
from intarsia.models.axes import INPUT
from intarsia.models.units import live_units

if TYPE_CHECKING:
    from rich.console import RenderableType

    from intarsia.modules.module import Module

FindingKind = Literal["dead", "undertrained", "inconsistent"]

NAMED = 3  # modules, or layers, that a summary names before it counts
ALIKE = 1e-6  # how far logits of a constant answer may be apart, relative to their size
SIZES = (1.0, 4.0, 16.0, 64.0)  # spreads of made-up inputs: some are far outside of any data
EACH = 8  # made-up inputs of each spread
LARGEST = 2**18  # entries of an input that is made up
HARDEST = 2**39  # multiplications at most, to ask a network about all of them
WIDEST = 2**26  # numbers that its widest layer gives to them, and how many of these at once
AT_ONCE = 2**24

KEY = "health"  # of a module's provenance, of bank.json, and of a composition's header
STORED = ("kind", "message", "advice")
AGAIN = "train it again, longer or with another learning rate"
LOWER = "lower the sparsity, widen the layer, or prune with magnitude(scope='layer')"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: of which kind, with which module, and what to do about it."""

    kind: FindingKind
    module: str  # its name; of a composition, what it is called
    message: str
    advice: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.module}: {self.message}: {self.advice}"


@dataclass(frozen=True)
class Health:
    """What is wrong with a module, a bank or a composition; nothing, if there is no finding."""

    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.findings

    @classmethod
    def of(cls, parts: "Iterable[Health]", *own: Finding) -> "Health":
        """What is wrong with a bank or composition itself, then what is wrong with its parts."""
        return cls((*own, *(finding for part in parts for finding in part.findings)))

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, "findings": [asdict(finding) for finding in self.findings]}

    @property
    def summary(self) -> str:
        """One line: for each kind the modules, some by name, and the first one's finding."""
        lines = []
        for kind in get_args(FindingKind):
            findings = [finding for finding in self.findings if finding.kind == kind]
            if findings:
                names = list(dict.fromkeys(finding.module for finding in findings))
                first = findings[0]
                lines.append(f"{kind}: {some_of(names)} ({first.message}): {first.advice}")
        return "; ".join(lines) or "nothing is wrong"

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings)) or "nothing is wrong"

    def __rich__(self) -> "RenderableType":
        from rich.table import Table
        from rich.text import Text

        if self.ok:
            return Text("nothing is wrong")
        table = Table()
        for heading in ("health", "module", "what is wrong", "what to do"):
            table.add_column(heading, overflow="fold")
        for finding in self.findings:
            table.add_row(*map(Text, asdict(finding).values()))  # Text: a name may be [red]
        return table


def warn(health: Health, what: str, stacklevel: int = 3) -> None:
    """One HealthWarning for all findings of a call, at the line that made the call."""
    if not health.ok:
        warnings.warn(f"{what} is not healthy: {health.summary}", HealthWarning, stacklevel)


def module_health(module: "Module") -> Health:
    """What the weights show now, and what training measured and wrote into the provenance."""
    dead = dead_weights(module)
    stored = read_findings(module.provenance.get(KEY, []), module.name)
    return Health((*dead, *(f for f in stored if not (dead and f.kind == "dead"))))


def with_findings(provenance: Mapping[str, Any], findings: Iterable[Finding]) -> dict[str, Any]:
    """The provenance with findings in it; as it was where there are none, so digests stay.

    The module's name is left out: it may be given another.
    """
    kept = [{key: getattr(f, key) for key in STORED} for f in findings]
    return {**provenance, KEY: kept} if kept else dict(provenance)


def read_findings(value: Any, module: str) -> tuple[Finding, ...]:
    """What `with_findings` wrote, from a header, or a FileError."""
    entries = value if isinstance(value, list) else [value]
    for entry in entries:
        fits = isinstance(entry, dict) and set(entry) == set(STORED)
        if not fits or not all(isinstance(text, str) for text in entry.values()):
            raise FileError(f"its {KEY!r} has {str(entry)[:80]!r}, expected {', '.join(STORED)}")
        if entry["kind"] not in get_args(FindingKind):
            raise FileError(f"its {KEY!r} has the unknown kind {entry['kind']!r}: upgrade intarsia")
    return tuple(Finding(module=module, **entry) for entry in entries)


def dead_weights(module: "Module") -> tuple[Finding, ...]:
    """Layers that pruning left without a weight, or no way through: what the weights alone show.

    A layer without weights need not make the answers the same, since others may go around it. That
    nothing gets through is only said where the network, asked, does answer the same: names of axes
    do not show every way there is.
    """
    zero = [
        name
        for name, entry in module.plan.items()
        if entry.learned and len(entry.shape) > 1 and not bool(module.state[name].any())
    ]
    mask = module.live
    if not zero and (not mask or _reaches(module)):
        return ()
    constant = _same_to_all(module)
    pruned = [name for name in zero if name in mask and not bool(mask[name].any())]
    if pruned:
        message = f"no weight of {some_of(pruned, quoted=False)} survives"
        message += ", so it answers the same to every input" if constant else ""
    elif constant:
        message = "it answers the same to every input: its weights lead from none to the outputs"
    else:
        return ()
    return (Finding("dead", module.name, message, LOWER if mask else AGAIN),)


def answers_alike(logits: Tensor) -> bool:
    """Whether logits, N x C, are the same in all rows, up to rounding; of one row nobody knows."""
    if len(logits) < 2:
        return False
    logits = logits.double()
    spread = logits.amax(0) - logits.amin(0)
    # A class that no part is for may have one huge logit, which says nothing of the others' size.
    size = torch.where(spread > 0, logits.abs().amax(0), 0).max()
    return bool(spread.max() <= ALIKE * (1 + size))


def made_up_inputs(shape: tuple[int, ...]) -> Tensor | None:
    """A few scaled inputs, small ones and such as no data has; None for inputs of huge shapes."""
    each = min(EACH, LARGEST // max(1, prod(shape)))
    if not each:
        return None
    generator = torch.Generator().manual_seed(0)
    return torch.cat([s * torch.randn(each, *shape, generator=generator) for s in SIZES])


def some_of(names: list[str], quoted: bool = True) -> str:
    """The first few names, and how many there are besides."""
    shown = [repr(name) if quoted else name for name in names[:NAMED]]
    more = len(names) - len(shown)
    if more:
        return f"{', '.join(shown)} and {more} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def _reaches(module: "Module") -> bool:
    """Whether kept weights lead from some input to the output, as far as axes have names."""
    try:
        wiring = module.architecture.wiring(module.factory)
        kept = {name: tensor != 0 for name, tensor in module.state.items()}
        live = live_units(wiring, module.state, kept)
    except Exception:  # whatever the code of a network says when it is looked through
        return True
    return INPUT not in live or bool(live[INPUT].any())


def _same_to_all(module: "Module") -> bool:
    """Whether the network's answers to made-up inputs are the same, if it can read them."""
    inputs = made_up_inputs(module.architecture.shape)
    if inputs is None:
        return False
    pixels = prod(module.architecture.shape[1:])
    shapes = [entry.shape for entry in module.plan.values() if entry.learned and entry.shape]
    steps = sum(prod(shape) * (pixels if len(shape) > 2 else 1) for shape in shapes)
    widest = max((shape[0] * (pixels if len(shape) > 2 else 1) for shape in shapes), default=1)
    if len(inputs) * steps > HARDEST or len(inputs) * widest > WIDEST:
        return False
    try:
        network = module.architecture.network(module.state, module.factory)
        with torch.no_grad():
            rows = inputs.split(max(1, AT_ONCE // widest))
            return answers_alike(torch.cat([network(some) for some in rows]))
    except Exception:  # whatever the code of a network says to inputs it is not made for
        return False
