"""The pages on pattern networks: what was aimed at, and how long fits take."""

from collections.abc import Sequence
from statistics import fmean, median

from intarsia.studies.wording import listed
from pages import RESULTS, Load, Result, met, page, table

Aim = tuple[str, str, str, bool]  # what, what was aimed at, what was measured, whether it is met
FITS = ("pattern_fits_cpu", "pattern_fits_cuda")
WAYS = {
    "stacked": "all networks in one stack",
    "alone": "the same function, one network after another",
    "plain": "autograd and torch's fused Adam, one network after another",
}


def sweetspot(load: Load) -> str:
    """Aims first, then what was measured, part by part, as far as it is there."""
    result, aims = load("sweetspot_facts"), load("targets")["sweetspot"]
    parts = result["parts"]
    rows = [row for name, check in CHECKS.items() if name in parts for row in check(parts, aims)]
    shown = [part for name, show in SHOWN.items() if name in parts for part in show(parts[name])]
    devices = {part["device"] for part in parts.values()}
    where = "" if devices == {"cpu"} else f", measured on {listed(sorted(devices))}"
    return page(
        "Pattern networks",
        [result],
        "Do the evolved [pattern networks](../guide/sweetspot.md), and networks fitted to them, "
        f"have the properties that are needed before any claim is tested on them{where}? "
        f"{sum(row[-1] for row in rows)} of {len(rows)} targets are met. The claims of the paper "
        "are tested by the study [sweetspot](study_sweetspot.md).",
        table(
            "what|target|measured|verdict",
            [[what, aim, number, met(holds)] for what, aim, number, holds in rows],
        ),
        *shown,
        f"PNG files were written by {result['encoder']}; their sizes depend on it.",
    )


def _rendering(parts: Result, aims: Result) -> list[Aim]:
    aim = aims["rendering"]
    rows = []
    for name, own in parts["rendering"]["targets"].items():
        errors = {how: own["errors"][how] for how in ("layers", "genome")}
        told = ", ".join(f"{how} {error:.1e}" for how, error in errors.items())
        what = f"{name}: error of the drawing at 256 pixels"
        rows.append((what, f"at most {aim:.0e}", told, max(errors.values()) <= aim))
    return rows


def _separation(parts: Result, aims: Result) -> list[Aim]:
    aim = aims["auc"]
    rows = []
    for name, own in parts["inflation"]["targets"].items():
        mean, n = fmean(own["auc"]), len(own["auc"])
        told = f"{mean:.3f} ({min(own['auc']):.3f} to {max(own['auc']):.3f}, {n} sign seeds)"
        what = f"{name}: AUC of inflation, evolved against twin"
        rows.append((what, f"at least {aim:g}", told, mean >= aim))
    return rows


def _maps(parts: Result, aims: Result) -> list[Aim]:
    aim = aims["maps"]
    rows = []
    for name, own in parts["maps"]["targets"].items():
        few, many = own["evolved"]["distinct"], own["twin"]["distinct"]
        told = f"{few} and {many}, ratio {few / many:.3f}"
        what = f"{name}: distinct maps, evolved and twin"
        rows.append((what, f"ratio at most {aim:g}", told, few <= aim * many))
    return rows


def _png(parts: Result, aims: Result) -> list[Aim]:
    targets = parts["png"]["targets"]
    by_depth = sorted(targets, key=lambda name: targets[name]["depth"])
    rows: list[Aim] = []
    for size, same in (("256", True), ("64", False)):
        order = sorted(targets, key=lambda name: targets[name]["by_size"][size])
        told = ", ".join(f"{name} {targets[name]['by_size'][size]:.3f}" for name in order)
        aim = "ordered by depth" if same else "not ordered by depth"
        rows.append((f"PNG ratios at {size} pixels", aim, told, (order == by_depth) == same))
    return rows


def _dense(parts: Result, aims: Result) -> list[Aim]:
    aim, own = aims["dense"], parts["dense"]
    return [
        (
            f"skull: median loss of dense networks, {_how(own)}, {schedule} learning rate",
            f"at most {aim:.0e}",
            _spread(losses),
            median(losses) <= aim,
        )
        for schedule, losses in own["losses"].items()
    ]


def _depth(parts: Result, aims: Result) -> list[Aim]:
    own, (few, many), times = parts["depth"], aims["depth"]["layers"], aims["depth"]["times"]
    rows = []
    for schedule, losses in own["losses"].items():
        ratio = median(losses[few]) / median(losses[many])
        told = f"{median(losses[few]):.1e} and {median(losses[many]):.1e}, ratio {ratio:.2f}"
        what = f"skull: median loss, {few} layers to {many}, {_how(own)}, {schedule} learning rate"
        rows.append((what, f"ratio at least {times:g}", told, ratio >= times))
    return rows


def _wiring(parts: Result, aims: Result) -> list[Aim]:
    aim, own = aims["wiring"], parts["wiring"]
    rows = []
    for copies, losses in own["losses"].items():
        what = f"skull: loss of the evolved wiring, retrained, copies {copies}, {_how(own)}"
        rows.append((what, f"all above {aim:.0e}", _spread(losses), min(losses) > aim))
    return rows


CHECKS = {
    "rendering": _rendering,
    "inflation": _separation,
    "maps": _maps,
    "png": _png,
    "dense": _dense,
    "depth": _depth,
    "wiring": _wiring,
}


def _show_targets(part: Result) -> list[str]:
    rows = [
        [name, own["depth"], own["parameters"], own["nonzero"], f"{own['errors']['twin']:.1e}"]
        for name, own in part["targets"].items()
    ]
    head = "target|hidden layers|weights|nonzero in the evolved network|error of the twin"
    return ["## The networks", table(head, rows)]


def _show_separation(part: Result) -> list[str]:
    rows = [
        [name, *(f"{fmean(own[who]):.3f}" for who in ("evolved", "twin", "auc"))]
        for name, own in part["targets"].items()
    ]
    return [
        "## Inflation",
        f"At {part['size']} pixels, up to {part['weights']} weights of each network; means over "
        "sign seeds. The score was chosen on these pairs, so this shows that it is measured as it "
        "was chosen, not that it is right.",
        table("target|inflation, evolved|inflation, twin|AUC", rows),
    ]


def _show_png(part: Result) -> list[str]:
    sizes = list(next(iter(part["targets"].values()))["by_size"])
    rows = [
        [name, own["depth"], f"{own['image']:.3f}", *(f"{own['by_size'][s]:.3f}" for s in sizes)]
        for name, own in part["targets"].items()
    ]
    head = "|".join(["target", "layers", "published image, 256 px", *(f"{s} px" for s in sizes)])
    return [
        "## PNG ratios",
        "PNG bytes divided by raw bytes of the network's drawing.",
        table(head, rows),
    ]


def _show_depth(part: Result) -> list[str]:
    rows = [
        [schedule, layers, _spread(losses)]
        for schedule, own in part["losses"].items()
        for layers, losses in own.items()
    ]
    return [
        "## Loss by depth",
        f"Dense networks with the skull's blocks, {_how(part)}: median (smallest to largest).",
        table("learning rate|hidden layers|loss", rows),
    ]


SHOWN = {
    "rendering": _show_targets,
    "inflation": _show_separation,
    "png": _show_png,
    "depth": _show_depth,
}


def _how(part: Result) -> str:
    pixels = f" of {part['pixels']} pixels each" if "pixels" in part else ""
    return f"{part['size']} px, {part['steps']} steps{pixels}"


def _spread(losses: Sequence[float]) -> str:
    ends = f"{min(losses):.1e} to {max(losses):.1e}"
    return f"{median(losses):.1e} ({ends}, n {len(losses)})"


def pattern_fits(load: Load) -> str:
    """A table for each device that was timed."""
    results = [load(name) for name in FITS if (RESULTS / f"{name}.json").exists()]
    aims = load("targets")["pattern_fits"]
    parts = []
    for result in results:
        device = "cpu" if result["clock"] == "processor" else "cuda"
        parts += [f"## {result['machine']}", *_timed(result, aims.get(device))]
    ways = "; ".join(f"`{way}`, {how}" for way, how in WAYS.items())
    longer = [
        f"{min(ratios):.1f} to {max(ratios):.1f} times as long ({result['machine']})"
        for result in results
        if (ratios := [r["ratio"] for r in result["rows"] if r["way"].startswith("alone")])
    ]
    return page(
        "Fits of pattern networks",
        results,
        "How much faster are pattern networks fitted in one stack than one after another? One "
        f"after another, the same function takes {listed(longer)} as the fastest stack. Networks "
        f"of the skull's layout are fitted to the embedded pattern. Ways: {ways}. For the ways "
        "that go one after another only a few networks are fitted, and the time per network is "
        "multiplied by the number of networks. A ratio is the time for all networks divided by "
        "that of the fastest stack.",
        *parts,
    )


def _timed(result: Result, aim: float | None) -> list[str]:
    rows = [
        [
            row["size"],
            f"`{row['way']}`",
            row["networks_fitted"],
            f"{row['seconds_of_all']:.2f}",
            f"{row['ms_per_network_step']:.3g}",
            f"{row['ratio']:.2f}",
        ]
        for row in result["rows"]
    ]
    clock = "CPU time" if result["clock"] == "processor" else "elapsed time"
    about = (
        f"{result['networks']} networks of {result['depth']} layers, {result['steps']} steps, "
        f"{clock}; {result['alone']} of them were fitted one after another."
    )
    head = "pixels per side|way|networks fitted|seconds for all|ms per network and step|ratio"
    alone = [row["ratio"] for row in result["rows"] if row["way"].startswith("alone")]
    if aim is None or not alone:
        return [about, table(head, rows)]
    verdict = (
        f"The target is a stack at least {aim:g} times as fast as one network after another; it is "
        f"{min(alone):.1f} times as fast: {met(min(alone) >= aim)}."
    )
    return [about, table(head, rows), verdict]
