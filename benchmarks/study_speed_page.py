"""The page on how long studies take and how safe they are."""

from collections.abc import Sequence

from pages import Result, page, table


def study_speed(speed: Result | None, kills: Result | None, targets: Result) -> str:
    """Either part is left out where its figures are not there yet."""
    parts: list[str] = []
    if speed:
        parts += ["## How long", *_speed(speed, targets["study_speed"])]
    if kills:
        parts += ["## How safe", *_kills(kills, targets["study_kills"])]
    return page("How long, and how safe", [found for found in (speed, kills) if found], *parts)


def _speed(result: Result, target: Result) -> Sequence[str]:
    ours, ratios = result["study"], result["ratios"]
    rows = [
        ["the study", "measured", f"{ours['seconds']:,.0f}", "1"],
        *(
            [f"{name} way", "extrapolated", f"{seconds:,.0f}", f"{ratios[name]:,.0f}"]
            for name, seconds in result["extrapolated_seconds"].items()
        ),
    ]
    ways = "; ".join(
        f"{name} {way['seconds_per_module_epoch']:.3f} s" for name, way in result["ways"].items()
    )
    times = next(iter(result["ways"].values()))["all_seconds_per_module_epoch"]
    verdict = "; ".join(
        f"the {name} way takes {ratios[name]:,.0f} times as long, {least} were aimed at: "
        f"{'met' if ratios[name] >= least else 'missed'}"
        for name, least in target.items()
    )
    return [
        f"Table 4 for {ours['model']} networks on {ours['data']}, whole, from an empty store: "
        f"{ours['modules']:,} modules are trained, {ours['module_epochs']:,} module-epochs, and "
        f"{ours['cells']} cells measured in {ours['seconds']:,.0f} s, of which "
        f"{ours['training_seconds']:,.0f} s are training and {ours['measuring_seconds']:,.0f} s "
        "measuring. The other ways train one module after another on the same device: the usual "
        "one with a data loader and per-sample transforms, the plain one on resident tensors. They "
        f"were timed for an epoch of one module, the fastest of {len(times)} ({ways}), and their "
        "totals are extrapolated to the modules and epochs of the study, without any measuring.",
        table("way|seconds are|seconds|times as long", rows),
        f"{verdict[0].upper()}{verdict[1:]}.",
    ]


def _kills(result: Result, target: Result) -> Sequence[str]:
    rows = [
        [
            trial["at_once"],
            trial["kills"],
            len(trial["runs"]),
            sum(run["repeated"] for run in trial["runs"]),
            "yes" if trial["equal"] else f"no: {', '.join(trial['differing'])}",
        ]
        for trial in result["trials"]
    ]
    enough = all(trial["kills"] >= target["kills"] for trial in result["trials"])
    return [
        "A study of digits is killed (kill -9) at random moments and begun again until it ends, by "
        f"one process and by two that share a store. Then its {result['files']} files of cells and "
        f"banks, {result['bytes']:,} bytes, are compared with those of an undisturbed run, which "
        f"takes {result['undisturbed_seconds']:.1f} s.",
        table("processes at once|kills|runs|done twice|same bytes", rows),
        f"{target['kills']} kills and the same bytes were aimed at: "
        f"{'met' if enough and result['equal'] else 'missed'}.",
    ]
