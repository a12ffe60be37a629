"""The page on crafted inputs: what was tried at every entry point, and what was refused."""

from intarsia.studies.wording import several
from pages import Load, Result, page, table

HELD = {"refused": "refused", "same": "read as before", "other": "read as something else"}
FAULTS = {
    "foreign": "an error that is not one of ours",
    "wrong": "a value that was not written",
    "memory": "too much memory",
    "time": "too long",
    "died": "the process died",
}


def armour(load: Load) -> str:
    result = load("armour")
    limits = result["limits"]
    return page(
        "Crafted inputs",
        [result],
        "Can a crafted file, text or request make the package crash, hang, use too much memory or "
        f"return wrong values? {result['inputs']:,} inputs, generated at random from a seed, were "
        "passed in wherever files, texts and requests are read. "
        f"{_faults(result)}",
        "An input is handled correctly if it is *refused* by one of our errors, a status or an "
        "exit code; *read as before*, since the change does not matter; or *read as something "
        "else*: if a format has no checksum, or the checksum was recomputed, the changed input "
        "may be valid. Tensors in files whose checksum was recomputed are compared with an "
        "independent reading of their bytes. A fault is an error that is not one of ours, a value "
        f"that was not written, a process that died, or more than {limits['seconds']:g} s of CPU "
        f"time, {limits['seconds']:g} s of waiting or {limits['bytes'] / 2**30:g} GiB for one "
        "input.",
        _totals(result),
        _skipped(result),
        "## By kind of input",
        "The last two columns give the longest time for one input of each kind, and the most "
        "memory above what the process already used:",
        _kinds(result),
        *_examples(result),
    )


def _faults(result: Result) -> str:
    count = result["faults"]
    words = "No fault was found." if not count else f"**{several(count, 'fault')} found.**"
    processes = "one process" if result["workers"] == 1 else f"{result['workers']} processes"
    return f"{words} The run took {result['seconds']:.0f} s in {processes}."


def _totals(result: Result) -> str:
    names = list(dict.fromkeys(row["surface"] for row in result["rows"]))
    of = {name: [row for row in result["rows"] if row["surface"] == name] for name in names}
    rows = [
        [f"**{name}**" if name == "all" else name, *_counts(own)]
        for name, own in {**of, "all": result["rows"]}.items()
    ]
    return table(
        "passed in as|inputs|handled correctly|" + "|".join(HELD.values()) + "|faults", rows
    )


def _counts(rows: list[Result]) -> list[str]:
    tried, *each = (sum(row[key] for row in rows) for key in ("tried", *HELD))
    return [f"{n:,}" for n in (tried, sum(each), *each, tried - sum(each))]


def _skipped(result: Result) -> str:
    if not result["skipped"]:
        return "All entry points were tried."
    return " ".join(
        f"Not tried here: {name}, because {why}." for name, why in result["skipped"].items()
    )


def _kinds(result: Result) -> str:
    rows = [
        [
            row["surface"],
            row["kind"],
            *_counts([row]),
            f"{row['most_seconds']:.2f}",
            row["most_MiB"],
        ]
        for row in result["rows"]
    ]
    head = (
        "passed in as|kind|inputs|handled correctly|"
        + "|".join(HELD.values())
        + "|faults|longest, seconds|most memory, MiB"
    )
    return table(head, rows)


def _examples(result: Result) -> list[str]:
    rows = [
        [row["surface"], row["kind"], example["index"], FAULTS[example["verdict"]], _code(example)]
        for row in result["rows"]
        for example in row["examples"]
    ]
    if not rows:
        return []
    advice = "Repeat any of them with `--only SURFACE --index NUMBER` and the same seed."
    return ["## Faults", advice, table("passed in as|kind|number|fault|detail", rows)]


def _code(example: Result) -> str:
    text = "".join(letter if letter.isprintable() else " " for letter in example["detail"])
    return "`" + text.replace("`", "'").replace("|", "/")[:160] + "`"
