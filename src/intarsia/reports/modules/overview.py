"""At a glance: the few numbers that matter most, and a picture of what the modules answer."""

import math
from collections.abc import Sequence

from intarsia.measure import Evaluation
from intarsia.plots import answers
from intarsia.reports.html.elements import numbers, paragraph
from intarsia.reports.html.words import counted, mean, nats, percent, spread
from intarsia.reports.modules.merged import best_of, confusion, name_of, one_seed
from intarsia.reports.modules.report_input import ReportInput
from intarsia.reports.modules.sections import ReportContext, section

TILES_UP_TO = 12  # modules, and
CLASSES_UP_TO = 20  # classes, that a picture of all their answers has room for


@section("overview", "At a glance", order=10)
def overview(context: ReportContext) -> str:
    """Numbers as tiles, and the picture of answers, or of one module its confusion matrix."""
    inputs, scores = context.inputs, context.mean_scores(context.inputs.modules)
    many = len(inputs.modules) > 1
    classes, most = counted(len(inputs.catalogue), "class", "classes"), nats(scores.ceiling)
    samples = f"{'their' if many else 'its'} own {context.split_name} samples"
    kept = "kept" if inputs.modules[0].base is None else "changed"
    tiles = [
        (str(len(inputs.modules)), f"module{'s' * many} over a catalogue of {classes}"),
        (percent(scores.accuracy), f"of {samples} answered correctly"),
        (f"{nats(scores.entropy)} nats", f"of entropy on all others, of at most {most}"),
        (percent(mean(module.density for module in inputs.modules)), f"of the parameters {kept}"),
    ]
    tiles = [tile for tile in tiles if not tile[0].startswith("-")]  # means over nothing
    picture, opening = "", _without_data(inputs)
    if context.has_data:
        opening = f"The numbers are from {len(context.measured.split):,} test samples."
        if len(inputs.together) > 1:
            tiles += [
                _tile(name_of(context.measured, operator), seeds)
                for operator, seeds in context.measured.seeded.items()
            ]
            picture = _answers(context)
            if picture:
                opening += " The picture shows what they answer, each alone and all of them joined."
        else:
            module = inputs.together[0]
            score = context.measured.single[module.name]
            picture = confusion(context, "alone", f"module {module.name}", score)
            opening += " The picture counts what it answers"
            opening += (
                "." if math.isnan(scores.entropy) else "; where it is unsure, that is by chance."
            )
    return f"{paragraph(opening)}\n{numbers(tiles)}\n{picture}"


def _tile(name: str, scores: Sequence[Evaluation]) -> tuple[str, str]:
    seeds = f", of {counted(len(scores), 'seed')}" if len(scores) > 1 else ""
    return spread([s.accuracy for s in scores]), f"right when joined: {name}{seeds}"


def _answers(context: ReportContext) -> str:
    """The picture of what every module answers, and all of them together; empty where too many."""
    measured, catalogue = context.measured, context.inputs.catalogue
    modules = context.inputs.together
    if not 1 < len(modules) <= TILES_UP_TO or len(catalogue) > CLASSES_UP_TO or not measured.joined:
        return ""
    best = best_of(measured)
    name = name_of(measured, best)
    parts = {module.name: measured.answers(measured.logits(module)) for module in modules}
    merged = {name: measured.answers(measured.joined_logits(best))}
    scores = context.mean_scores(modules)
    each = f"right on {percent(scores.accuracy)} of its own samples"
    if not math.isnan(scores.entropy):
        each += (
            f", with {nats(scores.entropy)} of at most {nats(scores.ceiling)} nats on all others"
        )
    together = f"right on {percent(measured.joined[best].accuracy)}"
    seed = one_seed(context.inputs)
    return context.figure(
        "answers",
        answers(parts, merged, catalogue),
        "Mean answers: a row is a true class, a column an answer, darker is more probable. Left, "
        f"each module alone: on average {each}. Right, all of them joined ({name}): "
        f"{together}.{seed}",
        f"What {counted(len(modules), 'module')} answer: alone, on average {each}; joined, "
        f"{together}.{seed}",
    )


def _without_data(inputs: ReportInput) -> str:
    return (
        f"The data set is not available ({inputs.missing}), so this page has what the files say: "
        "scores on validation data from the time of training. With the data it also shows how the "
        "modules do together."
    )
