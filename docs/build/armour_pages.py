"""The page on crafted inputs: what was tried at every way in, and what held."""

from pages import Load, Result, page, table

HELD = {"refused": "refused", "same": "read as before", "other": "read as another"}
FAULTS = {
    "foreign": "an error that is not ours",
    "wrong": "a value that nobody wrote",
    "memory": "too much memory",
    "time": "too long",
    "died": "the process ended",
}


def armour(load: Load) -> str:
    result = load("armour")
    limits = result["limits"]
    return page(
        "Crafted inputs",
        [result],
        f"{result['inputs']:,} inputs, made by chance from the seed, were handed in where files, "
        "texts and requests come in. Each holds if it is *refused* by an error of ours, a status "
        "or an exit code, *read as before*, since what was changed does not matter, or *read as "
        "another*: where nothing "
        "seals a format, or the input was sealed anew, it may be valid. Tensors of files that were "
        "sealed anew are compared with an independent reading of their bytes. A fault is an error "
        "that is not ours, a value that nobody wrote, a process that ended, or more than "
        f"{limits['seconds']:g} s of processor time, {limits['seconds']:g} s of waiting or "
        f"{limits['bytes'] / 2**30:g} GiB for one input. "
        f"{_faults(result)}",
        _totals(result),
        _skipped(result),
        "## By kind of input",
        "The longest time and the largest memory, above what the process had, of the inputs of "
        "each kind:",
        _kinds(result),
        *_examples(result),
    )


def _faults(result: Result) -> str:
    count = result["faults"]
    words = "No fault was found." if not count else f"**{count:,} faults were found.**"
    return f"{words} All took {result['seconds']:.0f} s in {result['workers']} processes."


def _totals(result: Result) -> str:
    names = list(dict.fromkeys(row["surface"] for row in result["rows"]))
    of = {name: [row for row in result["rows"] if row["surface"] == name] for name in names}
    rows = [
        [f"**{name}**" if name == "all" else name, *_counts(own)]
        for name, own in {**of, "all": result["rows"]}.items()
    ]
    return table("handed in as|tried|held|" + "|".join(HELD.values()) + "|faults", rows)


def _counts(rows: list[Result]) -> list[str]:
    tried, *each = (sum(row[key] for row in rows) for key in ("tried", *HELD))
    return [f"{n:,}" for n in (tried, sum(each), *each, tried - sum(each))]


def _skipped(result: Result) -> str:
    if not result["skipped"]:
        return "Everything was tried."
    return " ".join(
        f"Not tried here: {name}, since {why}." for name, why in result["skipped"].items()
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
    head = "handed in as|kind|tried|held|" + "|".join(HELD.values()) + "|faults|s|MiB"
    return table(head, rows)


def _examples(result: Result) -> list[str]:
    rows = [
        [row["surface"], row["kind"], example["index"], FAULTS[example["verdict"]], _code(example)]
        for row in result["rows"]
        for example in row["examples"]
    ]
    if not rows:
        return []
    advice = "Each can be tried again with `--only SURFACE --index NUMBER` and the same seed."
    return ["## Faults", advice, table("handed in as|kind|number|fault|detail", rows)]


def _code(example: Result) -> str:
    text = "".join(letter if letter.isprintable() else " " for letter in example["detail"])
    return "`" + text.replace("`", "'").replace("|", "/")[:160] + "`"
