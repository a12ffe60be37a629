"""Through the layers: how sure the modules are at each, and where cumulants stop being carried."""

import math
from collections.abc import Sequence
from dataclasses import replace

from intarsia.data import subsample
from intarsia.errors import IntarsiaError, ModelError
from intarsia.flow import Propagation, propagate
from intarsia.lens import TunedProfiles, tuned
from intarsia.modules import Module
from intarsia.plots import closure_error_by_layer
from intarsia.reports.html.elements import TableValue, folded, paragraph, table
from intarsia.reports.html.words import counted, listed, percent
from intarsia.reports.modules.merged import one_seed
from intarsia.reports.modules.sections import ReportContext, section

ROWS = 1_000  # samples that lenses are fitted on, and as many that they are measured on
LENSES, CARRIED = 10, 3  # modules that are looked at
WIDEST = 1_024  # units of a layer whose covariance a page has time for


@section("lens", "Entropy through the layers", order=83, needs_data=True)
def entropy_through_layers(context: ReportContext) -> str | None:
    """How sure every layer is, through a lens; not of large networks, which it takes long for."""
    inputs = context.inputs
    if all(len(module.rewarded) == len(module.catalogue) for module in inputs.together):
        return None  # there is no other class to be unsure of
    if inputs.large:
        return paragraph(
            "Left out, since the networks are large: intarsia lens modules measures it."
        )
    assert inputs.data is not None
    modules = inputs.together[:LENSES]
    try:
        profiles = tuned(modules, replace(inputs.data, test=inputs.test), rows=ROWS)
    except IntarsiaError as error:
        return paragraph(f"No lens can be fitted here: {error}")
    message = _lens_message(profiles)
    picture = context.figure("entropy-by-layer", profiles.figure(), message, message)
    shown = "" if len(modules) == len(inputs.together) else f" Of the first {len(modules)} modules."
    text = (
        "A hidden layer has no answer of its own, so a linear map to the module's logits is fitted "
        "for each on training samples, and the entropy of what it answers is measured on "
        f"{profiles.samples:,} test samples. A layer is called after the one that reads it."
        f"{shown}{one_seed(inputs)}"
    )
    return "\n".join([paragraph(text), picture, *_lens_tables(profiles)])


def _lens_message(profiles: TunedProfiles) -> str:
    """Where the modules know their own classes from others as well as at the end."""
    layers = profiles.layers
    first, last = (profiles.mean("auc_other", name) for name in (layers[0], layers[-1]))
    if math.isnan(last):
        return (
            "Entropy of the modules' answers through their layers; no sample is of another class."
        )
    known = [profiles.mean("auc_other", name) for name in layers]
    enough = next(n for n, value in zip(layers, known, strict=True) if value >= last - 0.005)
    ahead = profiles.mean("rewarded", layers[-1]), profiles.mean("other", layers[-1])
    return (
        f"Entropy at the end is {ahead[0]:.2f} nats for rewarded classes and {ahead[1]:.2f} for "
        f"others. It tells the two apart with an AUC of {first:.3f} at {layers[0]} and {last:.3f} "
        f"at {layers[-1]}; no worse by more than 0.005 from {enough} on."
    )


def _lens_tables(profiles: TunedProfiles) -> list[str]:
    kinds = list(profiles.modules[0].layers[0].strangers)
    keys = ["rewarded", "other", "auc_other", "auc_wrong", *kinds, "explained"]
    rows: list[list[TableValue]] = [
        [layer, *(profiles.mean(key, layer) for key in keys), _signs(profiles, layer)]
        for layer in profiles.layers
    ]
    columns = ["layer", "entropy, rewarded", "entropy, other", "AUC rewarded or other"]
    columns += ["AUC right or wrong", *(f"AUC {kind}" for kind in kinds), "variance explained"]
    columns.append("change for rewarded, other")
    caption = (
        f"Means over {counted(len(profiles.modules), 'module')}; AUC by entropy; change: modules "
        "that expand (+) or prune (-) against the layer above, or do neither (=)"
    )
    drawn = [table(columns, rows, caption)]
    if profiles.together:
        names = ["layer", "where right", "where wrong", "AUC right or wrong"]
        joint: list[list[TableValue]] = [
            [one.name, one.right, one.wrong, one.auc_wrong, *one.strangers.values()]
            for one in profiles.together
        ]
        about = (
            f"The surest module answers, and is wrong on {profiles.wrong:,} of "
            f"{profiles.samples:,}: its entropy, and the lowest one against strangers"
        )
        shown = table([*names, *(f"AUC {kind}" for kind in kinds)], joint, about)
        drawn.append(folded("All of them together", shown))
    return drawn


def _signs(profiles: TunedProfiles, layer: str) -> str:
    texts = []
    for group in ("rewarded", "other"):
        counts = profiles.signs(layer, group).values()
        texts.append(" ".join(f"{n}{mark}" for n, mark in zip(counts, "+-=", strict=True) if n))
    return ", ".join(texts) if any(texts) else ""


@section("flow", "Cumulants through the layers", order=86, needs_data=True)
def closure_by_layer(context: ReportContext) -> str | None:
    """Mean and covariance carried through the layers of fully connected modules."""
    inputs = context.inputs
    modules = [module for module in inputs.together[:CARRIED] if _narrow(module)]
    samples = subsample(inputs.test, ROWS)
    if not modules or len(samples) < 2:
        return None
    try:
        carried = {module.name: propagate(module, samples) for module in modules}
    except ModelError:
        return None  # not a chain of linear layers
    except IntarsiaError as error:
        return paragraph(f"Nothing can be carried here: {error}")
    found = {name: _errors(own, "covariance_error") for name, own in carried.items()}
    carried = {name: own for name, own in carried.items() if found[name]}
    if not carried:
        return paragraph("The layers give every sample the same, so that there is no covariance.")
    message = _closure_message(carried)
    title = "closure error by layer"
    errors = {f"module {name}": found[name] for name in carried}
    first = next(iter(carried))
    noise = {f"module {first}": _errors(carried[first], "covariance_noise")}
    drawn = closure_error_by_layer(errors, noise, title=title)
    picture = context.figure("closure-error", drawn, message, message)
    text = (
        "Mean and covariance of the test samples are carried through the layers of "
        f"{listed(list(carried))}, exactly through linear ones and as if their inputs were "
        f"Gaussian through activations, and compared with {len(samples):,} samples that go through."
        f"{one_seed(inputs)}"
    )
    return "\n".join([paragraph(text), picture, _closure_table(carried)])


def _narrow(module: Module) -> bool:
    widths = [max(entry.shape, default=0) for entry in module.plan.values() if entry.learned]
    return max(widths, default=0) <= WIDEST


def _errors(own: Propagation, key: str) -> dict[str, float]:
    """Behind every activation, and of the logits: linear layers add no error of their own."""
    kept = [layer for layer in own.layers[1:-1] if layer.kind != "affine"]
    known = [(f"ReLU {place}", getattr(layer, key)) for place, layer in enumerate(kept, start=1)]
    known.append(("logits", getattr(own.layers[-1], key)))
    return {name: value for name, value in known if value is not None and math.isfinite(value)}


def _closure_message(carried: dict[str, Propagation]) -> str:
    parts = []
    for name, own in carried.items():
        activations = [layer for layer in own if layer.kind not in ("input", "affine")]
        known = (layer.covariance_error for layer in activations)
        errors = [percent(own) for own in known if own is not None and math.isfinite(own)]
        if errors:
            parts.append(f"{listed(errors)} in module {name}")
    where = "; ".join(parts) or "nothing, since there is no activation"
    return f"The predicted covariance is off, behind one activation after the other, by {where}."


def _closure_table(carried: dict[str, Propagation]) -> str:
    rows: list[list[TableValue]] = []
    for name, own in carried.items():
        for layer in own:
            numbers: Sequence[float | None] = (
                layer.mean_error, layer.mean_noise, layer.covariance_error,
                layer.covariance_noise, layer.skewness, layer.kurtosis,
            )  # fmt: skip
            rows.append([name, layer.name, layer.kind, layer.units, *numbers])
    columns = ["module", "layer", "kind", "units", "mean off", "by sampling", "covariance off"]
    columns += ["by sampling ", "skewness", "kurtosis"]
    caption = "Relative errors, in Frobenius' norm; by sampling: of an exact prediction"
    return folded("The layers in numbers", table(columns, rows, caption))
