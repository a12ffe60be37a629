"""The modules of a bank, a card each: what it knows, what it keeps, and what it looks at."""

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
import torch
from torch import Tensor

from intarsia.data import Split, subsample
from intarsia.errors import WiringError
from intarsia.measure import Evaluation
from intarsia.models.custom.trial import input_dtype
from intarsia.models.wiring import hidden_axes, live_units
from intarsia.modules import Module
from intarsia.plots import png
from intarsia.reports.html.elements import Entry, folded, paragraph, table
from intarsia.reports.html.page import Section
from intarsia.reports.html.words import capital, counted, mean, nats, percent

MOST = 12  # cards; further modules are rows of a table
FEATURES = 6  # of a table of data: the strongest inputs
Units = Mapping[str, Mapping[str, torch.Tensor]]
"""By module and hidden layer, which units live."""


def cards(
    modules: Sequence[Module],
    rest: Sequence[Module],
    scores: dict[str, Evaluation],
    split: Split | None,
) -> tuple[Section, dict[str, np.ndarray]]:
    """The section, and the pictures of weights by module, where inputs are images.

    The first modules have cards, further ones and the `rest` are rows of a table. `scores` may be
    empty: then a card has what the module's file says of validation data.
    """
    pictures: dict[str, np.ndarray] = {}
    units = {module.name: live(module) for module in (*modules, *rest)}
    made = []
    for module in modules[:MOST]:
        weights = effective_weights(module, split)
        picture = None if weights is None else picture_of(weights)
        if picture is not None:
            pictures[module.name] = picture
        score = scores.get(module.name)
        made.append(_card(module, score, weights, picture, units[module.name]))
    rest = [*modules[MOST:], *rest]
    body = [paragraph(_opening([*modules[:MOST], *rest], scores, units))]
    if pictures:
        body.append(_legend(split is not None, list(pictures.values())))
    elif made and any("strongest" in card for card in made):
        body.append(paragraph(_reading(split is not None, "input")))
    body.append('<div class="cards">\n' + "\n".join(made) + "\n</div>")
    if rest:
        words = f"{capital(counted(len(rest), 'more module'))}, in a table"
        body.append(folded(words, _rows(rest, scores, units)))
    title = "The modules" if len(modules) > 1 else "The module"
    return Section("modules", title, "\n".join(body)), pictures


def own_scores(module: Module, score: Evaluation | None) -> tuple[float, float, float]:
    """Accuracy on its own classes, entropy on the others, and the largest entropy there is."""
    ceiling = float(np.log(len(module.catalogue)))
    if score is not None:
        return score.accuracy, score.entropy, ceiling
    kept = (module.provenance.get("scores") or {}).get("validation") or {}
    nothing = float("nan")
    accuracy, entropy = (kept.get(key) for key in ("accuracy", "entropy"))
    return (
        nothing if accuracy is None else float(accuracy),
        nothing if entropy is None else float(entropy),
        ceiling,
    )


def _opening(modules: Sequence[Module], scores: dict[str, Evaluation], units: Units) -> str:
    each = [own_scores(m, scores.get(m.name)) for m in modules]
    accuracy, entropy = mean(a for a, _, _ in each), mean(e for _, e, _ in each)
    where = "test samples" if scores else "validation samples, as their files say"
    counts = [(int(u.sum()), len(u)) for layers in units.values() for u in layers.values()]
    who = "on average a module is" if len(modules) > 1 else "it is"
    words = (
        f"{capital(counted(len(modules), 'module'))}; {who} right on "
        f"{percent(accuracy)} of its own {where}"
    )
    if not np.isnan(entropy):
        words += (
            f", and keeps {nats(entropy)} of at most {nats(each[0][2])} nats on all others: the "
            "nearer to the ceiling, the less it says about what is not its own"
        )
    words += ". "
    if any(alive < there for alive, there in counts):
        share = sum(alive for alive, _ in counts) / sum(there for _, there in counts)
        words += (
            f"{percent(share)} of the hidden units still lead to the output; a strip shows where "
            "they lie in their layer."
        )
    return words


def _legend(known: bool, pictures: Sequence[np.ndarray]) -> str:
    scale = png(np.linspace(-1, 1, 64)[None])
    colours = (
        '<p class="legend"><span>against its class</span>'
        f'<img src="{scale}" width="64" height="1" alt="blue to pale to brown">'
        "<span>for its class</span></p>"
    )
    total = sum(float(np.abs(values).sum()) for values in pictures)
    against = sum(float(-values[values < 0].sum()) for values in pictures)
    share = f" Of all that weight {percent(against / total)} speaks against." if total else ""
    return paragraph(_reading(known, "pixel") + share) + "\n" + colours


def _reading(known: bool, what: str) -> str:
    samples = "the module's own test samples" if known else "random inputs, since there is no data"
    return (
        f"The effective weights tell how much each {what} speaks for or against the module's own "
        f"class: every way from it to the logits, through units that {samples} switch on. "
        "Each module has a scale of its own."
    )


def _card(
    module: Module,
    score: Evaluation | None,
    weights: np.ndarray | None,
    picture: np.ndarray | None,
    layers: Mapping[str, torch.Tensor],
) -> str:
    accuracy, entropy, ceiling = own_scores(module, score)
    where = "test" if score is not None else "validation"
    classes = "class" if len(module.rewarded) == 1 else "classes"
    lines = [f'<article class="card" aria-labelledby="{_anchor(module)}">']
    lines.append(f'<h3 id="{_anchor(module)}">{escape(_title(module))}</h3>')
    lines.append('<div class="weights">')
    if picture is not None:
        name = " and ".join(module.rewarded)
        lines.append(image(picture, f"Effective weights of the module for {name}"))
    lines.append(
        f"<p><strong>{percent(accuracy)}</strong> right on the {where} samples of its own "
        f"{classes}</p></div>"
    )
    if picture is None and weights is not None and weights.ndim == 1:
        lines.append(_strongest(weights))
    if not np.isnan(entropy):
        unsure = f"{nats(entropy)} of {nats(ceiling)}"
        lines.append(_meter("Entropy on others", unsure, entropy / ceiling))
    kept = f"{module.nonzero:,} of {module.parameters:,}"
    lines.append(_meter("Density", kept, module.density))
    for number, units in enumerate(layers.values(), 1):
        name = "Live units" if len(layers) == 1 else f"Live units, layer {number}"
        lines.append(_units(name, units))
    lines.append("</article>")
    return "\n".join(lines)


def _title(module: Module) -> str:
    classes = " + ".join(module.rewarded)
    plain = module.name.removesuffix(f"-s{module.provenance.get('seed')}")
    return f"Module {module.name}" if classes == plain else f"{module.name} ({classes})"


def _anchor(module: Module) -> str:
    return f"module-{module.digest[:10]}"


def _meter(name: str, value: str, share: float) -> str:
    words = f"<p><span>{escape(name)}</span><span>{escape(value)}</span></p>"
    return f'<div class="meter">{words}{bar(share)}</div>'


def _units(name: str, units: torch.Tensor) -> str:
    count = f"{int(units.sum()):,} of {len(units):,}"
    words = f"<p><span>{escape(name)}</span><span>{count}</span></p>"
    return f'<div class="meter">{words}{strip(units.numpy())}</div>'


def _strongest(weights: np.ndarray) -> str:
    order = np.argsort(-np.abs(weights), kind="stable")[:FEATURES]
    lines = "".join(
        f"<li><span>input {place}</span><span>{weights[place]:+.3f}</span></li>" for place in order
    )
    return f'<ul class="strongest">{lines}</ul>'


def _rows(modules: Sequence[Module], scores: dict[str, Evaluation], units: Units) -> str:
    rows: list[list[Entry]] = []
    for module in modules:
        accuracy, entropy, _ = own_scores(module, scores.get(module.name))
        alive = " + ".join(str(int(u.sum())) for u in units[module.name].values()) or "-"
        rows.append([module.name, accuracy, entropy, f"{module.density:.2%}", alive])
    columns = ["module", "accuracy on its own", "entropy on others", "density", "live units"]
    return table(columns, rows, "The modules that have no card")


SAMPLES = 256  # that the effective weights are averaged over


def effective_weights(module: Module, split: Split | None) -> np.ndarray | None:
    """How much each input speaks for the module's classes, in the shape of an input.

    The mean over samples of d(own - others)/dx, where `own` is the mean logit of the rewarded
    classes, `others` that of the rest, and x the scaled input. Of an MLP that is the product of its
    weights along every way from an input to the logits, each hidden unit counted as often as these
    samples switch it on. They are the module's own where a split is given, else standard normal
    noise. None for a module that rewards everything: it has no others; and for one that reads whole
    numbers, such as token ids, which have no slope.
    """
    places = [module.catalogue.index(name) for name in module.rewarded]
    rest = [c for c in range(module.architecture.outputs) if c not in places]
    if not rest:
        return None
    network = module.architecture.network(module.state, module.factory)
    if not input_dtype(network, module.architecture.shape).is_floating_point:
        return None
    rows = _weight_rows(module, split, places).requires_grad_()
    with torch.enable_grad():
        logits = network(rows)
        gap = (logits[:, places].mean(dim=1) - logits[:, rest].mean(dim=1)).sum()
        (slope,) = torch.autograd.grad(gap, rows)
    return slope.double().mean(dim=0).numpy()


def live(module: Module) -> Mapping[str, Tensor]:
    """For each hidden layer the units that still reach the output; none without wiring."""
    try:
        wiring = module.architecture.wiring(module.factory)
    except WiringError:
        return {}
    units = live_units(wiring, module.state, module.mask)
    return {axis: units[axis] for axis in hidden_axes(wiring)}


def _weight_rows(module: Module, split: Split | None, places: list[int]) -> Tensor:
    own = None if split is None else split.select(places)
    if own is None or not len(own):
        draw = torch.Generator().manual_seed(0)
        return torch.randn(SAMPLES, *module.architecture.shape, generator=draw)
    x = subsample(own, SAMPLES).x
    return module.scaling(x.reshape(len(x), *module.architecture.shape)).to(torch.float32)


LARGEST = 96  # pixels of a side; larger pictures are thinned out


def picture_of(weights: np.ndarray) -> np.ndarray | None:
    """Weights of an image, summed over its channels, H x W; None of what is no image."""
    if weights.ndim == 2:
        weights = weights[None]
    if weights.ndim != 3 or min(weights.shape[1:]) < 2:
        return None
    flat = weights.sum(axis=0)
    step = -(-max(flat.shape) // LARGEST)
    return flat[::step, ::step]


def strip(units: np.ndarray) -> str:
    """Which of a layer's units live, as a row of lines in the colour of the text around it."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], units.astype(int), [0]])))
    runs = "".join(f"M{a} .5H{b}" for a, b in edges.reshape(-1, 2).tolist())
    return (
        f'<svg class="units" viewBox="0 0 {len(units)} 1" preserveAspectRatio="none" '
        f'aria-hidden="true"><path d="{runs}" stroke="currentColor"/></svg>'
    )


def bar(share: float) -> str:
    """A filled share, in the colour of the text around it; a sentence beside it says how much."""
    width = 100 * min(max(share, 0.0), 1.0)
    return (
        '<svg viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">'
        f'<path d="M0 .5H{width:.2f}" stroke="currentColor"/></svg>'
    )


def image(values: np.ndarray, label: str) -> str:
    """A picture of weights in the page; `label` is what a screen reader says in its place."""
    height, width = values.shape
    return (
        f'<img src="{png(values)}" width="{width}" height="{height}" alt="{escape(label)}" '
        f'style="--shape:{width}/{height}">'
    )
