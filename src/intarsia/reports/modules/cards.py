"""The modules, a card each: what it recognises, what it keeps, and which inputs it looks at."""

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
import torch
from torch import Tensor

from intarsia.data import Split, subsample
from intarsia.models.custom.trial import input_dtype
from intarsia.modules import Module
from intarsia.modules.compact import live_hidden_units
from intarsia.plots import png
from intarsia.plots import weights as draw_weights
from intarsia.reports.html.elements import TableValue, folded, paragraph, table
from intarsia.reports.html.words import capital, counted, nats, percent
from intarsia.reports.modules.sections import ReportContext, section

MOST = 12  # cards; further modules are rows of a table
FEATURES = 6  # of a table of data: the strongest inputs
SAMPLES = 256  # that the effective weights are averaged over
Units = Mapping[str, Mapping[str, Tensor]]
"""By module and hidden layer, which units live."""


@section("modules", "Modules", order=30)
def cards(context: ReportContext) -> str:
    """A card for each of the first modules that are joined; all others are rows of a table."""
    inputs = context.inputs
    split = inputs.test if context.has_data else None
    units = {module.name: live_hidden_units(module) for module in inputs.modules}
    pictures: dict[str, np.ndarray] = {}
    made = []
    for module in inputs.together[:MOST]:
        weights = effective_weights(module, split)
        picture = None if weights is None else picture_of(weights)
        if picture is not None:
            pictures[module.name] = picture
        made.append(_card(context, module, weights, picture, units[module.name]))
    rest = [*inputs.together[MOST:], *inputs.others]
    body = [paragraph(_opening(context, units))]
    if pictures:
        context.figures["weights"] = draw_weights(pictures)
        body.append(_legend(split is not None, list(pictures.values())))
    elif made and any("strongest" in card for card in made):
        body.append(paragraph(_explanation(split is not None, "input")))
    body.append('<div class="cards">\n' + "\n".join(made) + "\n</div>")
    if rest:
        summary = f"{capital(counted(len(rest), 'more module'))}, in a table"
        body.append(folded(summary, _rows(context, rest, units)))
    return "\n".join(body)


def _opening(context: ReportContext, units: Units) -> str:
    modules = context.inputs.modules
    scores = context.mean_scores(modules)
    where = "test samples" if context.has_data else "validation samples, according to their files"
    who = "on average a module is" if len(modules) > 1 else "it is"
    words = (
        f"{capital(counted(len(modules), 'module'))}; {who} right on "
        f"{percent(scores.accuracy)} of its own {where}"
    )
    if not np.isnan(scores.entropy):
        words += (
            f", and keeps {nats(scores.entropy)} of at most {nats(scores.ceiling)} nats on all "
            "others: the closer to the ceiling, the less it says about what is not its own"
        )
    words += ". "
    counts = [(int(u.sum()), len(u)) for layers in units.values() for u in layers.values()]
    if any(alive < there for alive, there in counts):
        fraction = sum(alive for alive, _ in counts) / sum(there for _, there in counts)
        words += (
            f"{percent(fraction)} of the hidden units still lead to the output; a strip shows "
            "where they are in their layer."
        )
    return words


def _legend(has_data: bool, pictures: Sequence[np.ndarray]) -> str:
    scale = png(np.linspace(-1, 1, 64)[None])
    colours = (
        '<p class="legend"><span>against its class</span>'
        f'<img src="{scale}" width="64" height="1" alt="blue to pale to brown">'
        "<span>for its class</span></p>"
    )
    total = sum(float(np.abs(values).sum()) for values in pictures)
    against = sum(float(-values[values < 0].sum()) for values in pictures)
    part = f" Of all that weight {percent(against / total)} speaks against." if total else ""
    return paragraph(_explanation(has_data, "pixel") + part) + "\n" + colours


def _explanation(has_data: bool, what: str) -> str:
    samples = "the module's own test samples" if has_data else "random inputs, for lack of data,"
    return (
        f"The effective weights show how much each {what} speaks for or against the module's own "
        f"class: every way from it to the logits, through units that {samples} switch on. "
        "Each module has a scale of its own."
    )


def _card(
    context: ReportContext,
    module: Module,
    weights: np.ndarray | None,
    picture: np.ndarray | None,
    layers: Mapping[str, Tensor],
) -> str:
    scores = context.own_scores(module)
    classes = "class" if len(module.rewarded) == 1 else "classes"
    anchor = f"module-{module.digest[:10]}"
    lines = [f'<article class="card" aria-labelledby="{anchor}">']
    lines.append(f'<h3 id="{anchor}">{escape(_title(module))}</h3>')
    lines.append('<div class="weights">')
    if picture is not None:
        name = " and ".join(module.rewarded)
        lines.append(image(picture, f"Effective weights of the module for {name}"))
    lines.append(
        f"<p><strong>{percent(scores.accuracy)}</strong> right on the {context.split_name} samples "
        f"of its own {classes}</p></div>"
    )
    if picture is None and weights is not None and weights.ndim == 1:
        lines.append(_strongest(weights, _feature_names(context, module, len(weights))))
    if not np.isnan(scores.entropy):
        value = f"{nats(scores.entropy)} of {nats(scores.ceiling)}"
        lines.append(_meter("Entropy on others", value, bar(scores.entropy / scores.ceiling)))
    kept = f"{module.nonzero:,} of {module.parameters:,}"
    lines.append(_meter("Density" if module.base is None else "Changed", kept, bar(module.density)))
    for number, units in enumerate(layers.values(), 1):
        name = "Live units" if len(layers) == 1 else f"Live units, layer {number}"
        value = f"{int(units.sum()):,} of {len(units):,}"
        lines.append(_meter(name, value, strip(units.numpy())))
    lines.append("</article>")
    return "\n".join(lines)


def _title(module: Module) -> str:
    classes = " + ".join(module.rewarded)
    plain = module.name.removesuffix(f"-s{module.provenance.get('seed')}")
    return f"Module {module.name}" if classes == plain else f"{module.name} ({classes})"


def _meter(name: str, value: str, drawing: str) -> str:
    """A name, its value, and a bar or strip below them."""
    words = f"<p><span>{escape(name)}</span><span>{escape(value)}</span></p>"
    return f'<div class="meter">{words}{drawing}</div>'


def _feature_names(context: ReportContext, module: Module, count: int) -> Sequence[str]:
    """The columns of a table by their names; other inputs by their numbers."""
    columns = () if context.inputs.data is None else context.inputs.data.columns
    if module.encoder is None and len(columns) == count:
        return columns
    what = "input" if module.encoder is None else "feature"
    return [f"{what} {place}" for place in range(count)]


def _strongest(weights: np.ndarray, names: Sequence[str]) -> str:
    order = np.argsort(-np.abs(weights), kind="stable")[:FEATURES]
    lines = "".join(
        f"<li><span>{escape(names[place])}</span><span>{weights[place]:+.3f}</span></li>"
        for place in order
    )
    return f'<ul class="strongest">{lines}</ul>'


def _rows(context: ReportContext, modules: Sequence[Module], units: Units) -> str:
    rows: list[list[TableValue]] = []
    for module in modules:
        scores = context.own_scores(module)
        alive = " + ".join(str(int(u.sum())) for u in units[module.name].values()) or "-"
        density = f"{module.density:.2%}"
        rows.append([module.name, scores.accuracy, scores.entropy, density, alive])
    columns = ["module", "accuracy on its own", "entropy on others", "density", "live units"]
    return table(columns, rows, "The modules that have no card")


def effective_weights(module: Module, split: Split | None) -> np.ndarray | None:
    """How much each input speaks for the module's classes, in the shape of an input.

    The mean over samples of d(own - others)/dx, where `own` is the mean logit of the rewarded
    classes, `others` that of the rest, and x the scaled input. Of an MLP that is the product of its
    weights along every way from an input to the logits, each hidden unit counted as often as these
    samples switch it on. They are the module's own where a split is given, else standard normal
    noise. None for a module that rewards every class, so that there are no others, and for one that
    reads what has no gradient: token ids, or numbers of a graph's nodes.
    """
    places = [module.catalogue.index(name) for name in module.rewarded]
    rest = [c for c in range(module.architecture.outputs) if c not in places]
    if not rest:
        return None
    network = module.architecture.network(module.state, module.factory)
    if not input_dtype(network, module.architecture.shape).is_floating_point:
        return None
    rows = _inputs_of(module, split, places).requires_grad_()
    with torch.enable_grad():
        logits = network(rows)
        gap = (logits[:, places].mean(dim=1) - logits[:, rest].mean(dim=1)).sum()
        (gradient,) = torch.autograd.grad(gap, rows, allow_unused=True)
    return None if gradient is None else gradient.double().mean(dim=0).numpy()


def _inputs_of(module: Module, split: Split | None, places: list[int]) -> Tensor:
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


def bar(fraction: float) -> str:
    """A bar filled to a fraction, in the colour of the text around it, which says how much."""
    width = 100 * min(max(fraction, 0.0), 1.0)
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
