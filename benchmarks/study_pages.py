"""The pages on studies, one each, made from the packs beside them; and what they say in short."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from intarsia.studies import seeds_of
from pages import page, table
from study_counting import Verdict, listed, met_in_short
from study_packs import Studies, Variant, command, modules_and_seconds
from study_verdicts import impact, pairs, single
from study_verdicts_others import confusion, continual, controls, path, unlearning
from study_verdicts_steps import complete, sparsity, temperature, width

VERDICTS: dict[str, Callable[[Sequence[Variant], Studies], Verdict]] = {
    "single": single,
    "pairs": pairs,
    "impact": impact,
    "complete": complete,
    "temperature": temperature,
    "sparsity": sparsity,
    "width": width,
    "path": path,
    "confusion": confusion,
    "controls": controls,
    "unlearning": unlearning,
    "continual": continual,
}
SHOWN = {
    "single": "Table 1: modules know their class and are unsure of all others",
    "pairs": "Tables 2 and 4: two modules added know both; ME is better than QME, QME than XE",
    "impact": "Figure 3: pruning helps modules to be added",
    "complete": "Figure 4: all modules added, shallow ones stay accurate, deep ones do not",
    "temperature": "Figure 6: the sum of all modules by temperature",
    "sparsity": "Figures 7 and 8: sums by sparsity",
    "width": "wider networks leave modules more room; said without numbers",
    "path": "Figures 5 and 22 to 24: the loss on the way from one module to another",
    "confusion": "Figures 2 and 9 to 21: which class is answered for which",
    "controls": "nothing; its reviewers asked whether objective or pruning does it",
    "unlearning": "nothing; a class removed, against retraining and gradient ascent",
    "continual": "nothing; classes one by one, against fine-tuning and joint training",
}
COUNTS = ("seeds", "pairs", "orders")  # options that say how often
FIGURES, BYTES = 4, 300_000  # at most so many on a page, and so large
# Words in the names of figures, from what a page should show first on.
FIRST = ("mnist", "shallow", "-imp", "-me-")


def verdicts(studies: Studies) -> dict[str, Verdict]:
    """What every study says."""
    return {name: VERDICTS[name](variants, studies) for name, variants in studies.items()}


def study_files(studies: Studies, said: Mapping[str, Verdict], folder: Path) -> dict[Path, str]:
    """The page of every study that has a pack, and its figures."""
    found = {}
    for name, variants in studies.items():
        figures = chosen_figures(variants[0])
        found[folder / f"study_{name}.md"] = study_page(variants, said[name], list(figures))
        found |= {folder / f"{file}.svg": svg for file, svg in figures.items()}
    return found


def study_page(variants: Sequence[Variant], said: Verdict, figures: Sequence[str] = ()) -> str:
    """What was asked, how it was measured, what it says; then tables and figures."""
    study = variants[0].study
    parts = [
        study.about,
        _commands(variants),
        _origins(variants),
        said.words,
        *(f"![{study.title}: {_alt(study.name, figure)}]({figure}.svg)" for figure in figures),
    ]
    for variant in variants:
        parts.append(f"## {variant.label[0].upper()}{variant.label[1:]}")
        parts += [table.markdown().rstrip() for table in variant.tables]
    return page(study.title, [], *parts)


def chosen_figures(variant: Variant) -> dict[str, str]:
    """A few of the study's figures, by the name of their file."""
    drawn = variant.study.figures(variant.measured)
    fit = [name for name, svg in drawn.items() if len(svg.encode()) < BYTES]
    ranked = sorted(fit, key=lambda name: -sum(word in name for word in FIRST))
    return {f"study_{name}": drawn[name] for name in fit if name in ranked[:FIGURES]}


def studies_table(said: Mapping[str, Verdict], names: Mapping[str, str]) -> str:
    """What every study says in one line; other pages of these names are linked below."""
    rows = [[f"[{name}](study_{name}.md)", SHOWN[name], found.line] for name, found in said.items()]
    parts = [table("study|the paper shows|verdict", rows)] if rows else []
    others = [name for name in names if name.removeprefix("study_") not in said]
    return "\n\n".join([*parts, *(f"[{names[name]}]({name}.md)" for name in others)])


def studies_in_short(studies: Studies, said: Mapping[str, Verdict]) -> str:
    """What reproduces, what it took and the command, for the README."""
    words = []
    if "single" in studies and "pairs" in studies:
        one, two = (
            met_in_short(studies["single"], "Table 1"),
            met_in_short(studies["pairs"], "Table 4"),
        )
        order = said["pairs"].line.partition("; ")[2]
        words.append(
            f"Of the numbers that the paper printed, {one[0]} of {one[1]} in Table 1 and {two[0]} "
            f"of {two[1]} in Table 4 are met within two of its standard deviations; {order}."
        )
    if "complete" in studies:
        words.append(f"The sum of all shallow modules with pruning: {said['complete'].line}.")
    if "pairs" in studies:
        modules, seconds = modules_and_seconds(studies["pairs"])
        words.append(
            f"The {modules:,} modules of Tables 2 and 4 took {seconds:,.0f} s of training on "
            f"{listed(_all(studies['pairs'], 'devices'))}."
        )
    if not words:
        return ""
    end = "All verdicts are in [results](docs/results/index.md#studies)."
    shown = fill(" ".join([*words, end]), 119, break_on_hyphens=False, break_long_words=False)
    example = "```bash\nintarsia study run pairs --data mnist --models shallow\n```"
    return f"## The paper, checked\n\n{shown}\n\n{example}"


def navigation(names: Mapping[str, str]) -> str:
    """Lines of mkdocs.yml for pages by their titles; none where there are none."""
    lines = [f'          - "{title}": results/{name}.md' for name, title in names.items()]
    return "\n".join(["      - Studies:", *lines]) if lines else ""


def titles(studies: Studies) -> dict[str, str]:
    """The names of all pages with their titles."""
    return {f"study_{name}": variants[0].study.title for name, variants in studies.items()}


def _commands(variants: Sequence[Variant]) -> str:
    packs = [(file, pack) for variant in variants for file, pack in variant.packs.items()]
    study = variants[0].study
    lines = [command(study, pack.options) for _, pack in packs]
    lines += [f"intarsia study table {study.name} --from docs/results/{file}" for file, _ in packs]
    return "\n".join(f"    {line}" for line in lines)


def _origins(variants: Sequence[Variant]) -> str:
    """Where the cells come from and what they took, pack by pack."""
    rows = []
    for variant in variants:
        for file, pack in variant.packs.items():
            runs = pack.runs
            rows.append(
                [
                    f"[{file}]({file})",
                    f"{len(pack.measured)}" + (f", {pack.missing} missing" if pack.missing else ""),
                    ", ".join(
                        f"{_number(pack.options[k])} {k}" for k in COUNTS if k in pack.options
                    ),
                    f"{runs['modules']:,}",
                    f"{runs['training_seconds']:,.0f}",
                    f"{runs['measuring_seconds']:,.0f}",
                    ", ".join(runs["devices"]),
                    ", ".join(runs["dates"]),
                ]
            )
    versions = [
        ", ".join(f"{name} {number}" for name, number in found.items())
        for found in _all(variants, "versions")
    ]
    head = "pack|cells|n|modules trained|s of training|s of measuring|device|date"
    shared = "A module that several studies need is trained once and counted on each page."
    return f"{table(head, rows)}\n\nVersions: {'; '.join(versions)}. {shared}"


def _number(value: Any) -> int:
    return len(seeds_of(value))


def _all(variants: Sequence[Variant], key: str) -> list[Any]:
    """What the runs of all packs have under a key, each once."""
    found = []
    for variant in variants:
        for pack in variant.packs.values():
            found += [value for value in pack.runs[key] if value not in found]
    return found


def _alt(name: str, figure: str) -> str:
    return figure.removeprefix(f"study_{name}").strip("-").replace("-", ", ") or name
