"""The page on how long studies take and how safe they are."""

from collections.abc import Sequence

from pages import Result, page, table
from study_counting import capital, listed


def study_speed(speed: Result | None, kills: Result | None, targets: Result) -> str:
    """Either part is left out where its figures are not there yet."""
    parts: list[str] = []
    if speed:
        parts += ["## How long", *_speed(speed, targets["study_speed"])]
    if kills:
        parts += ["## How safe", *_kills(kills, targets["study_kills"])]
    return page("How long, and how safe", [result for result in (speed, kills) if result], *parts)


def _speed(result: Result, target: Result) -> Sequence[str]:
    ours, ratios = result["study"], result["ratios"]
    left = _left_out(result["ways"])
    ways = {name: way for name, way in result["ways"].items() if name not in left}
    rows = [
        ["the study", "measured", f"{ours['seconds']:,.0f}", "1"],
        *(
            [f"{name} way", "extrapolated", f"{seconds:,.0f}", f"{ratios[name]:,.0f}"]
            for name, seconds in result["extrapolated_seconds"].items()
            if name in ways
        ),
    ]
    kinds = {
        "usual": "the usual one with a data loader and per-sample transforms",
        "plain": "the plain one on resident tensors",
    }
    named = listed([kinds[name] for name in ways])
    timed = "; ".join(f"{n} {way['seconds_per_module_epoch']:.3f} s" for n, way in ways.items())
    times = next(iter(ways.values()))["all_seconds_per_module_epoch"]
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
        "measuring. Compared are ways that train one module after another on the same device: "
        f"{named}. Timed for an epoch of one module, the fastest of {len(times)} ({timed}), and "
        "extrapolated to the modules and epochs of the study, without any measuring:",
        table("way|seconds are|seconds|times as long", rows),
        *left.values(),
        f"{capital(verdict)}.",
    ]


def _left_out(ways: Result) -> dict[str, str]:
    """The plain way where it comes out slower than the usual one, which its loop cannot be."""
    key = "seconds_per_module_epoch"
    if not {"usual", "plain"} <= set(ways) or ways["plain"][key] <= ways["usual"][key]:
        return {}
    plain = ways["plain"]
    epochs = round(plain["seconds"] / plain[key] / plain["modules"])
    return {
        "plain": "The plain way, the same loop on resident tensors, is left out: its "
        f"{plain[key]:.3f} s come from one whole run of {epochs} epochs, which is too short to "
        "tell; what a run takes beside its epochs, such as starting the device, is a large part "
        "of it."
    }


def _kills(result: Result, target: Result) -> Sequence[str]:
    cells = len(result["options"]["objectives"]) * result["options"]["seeds"]
    rows = [
        [
            trial["at_once"],
            trial["kills"],
            " and ".join(f"{run['cells_at_last_kill']} of {cells}" for run in trial["runs"]),
            sum(run["repeated"] for run in trial["runs"]),
            "yes" if trial["equal"] else f"no: {', '.join(trial['differing'])}",
        ]
        for trial in result["trials"]
    ]
    enough = all(trial["kills"] >= target["kills"] for trial in result["trials"])
    done = [run["cells_at_last_kill"] for trial in result["trials"] for run in trial["runs"]]
    return [
        "A study of digits is killed (kill -9) at random moments and begun again until it ends, by "
        f"one process and by two that share a store. Then its {result['files']} files of cells and "
        f"banks, {result['bytes']:,} bytes, are compared with those of an undisturbed run, which "
        f"takes {result['undisturbed_seconds']:.1f} s.",
        table(
            "processes at once|kills|cells finished at the last kill|done twice|same bytes", rows
        ),
        f"By the last kill of a run {min(done)} to {max(done)} of its {cells} cells were finished: "
        "the kills fall into the part before it, and the rest runs undisturbed. Where a run ends "
        "before it has had all its kills, another one begins in an empty store.",
        f"{target['kills']} kills and the same bytes were aimed at: "
        f"{'met' if enough and result['equal'] else 'missed'}.",
    ]
