"""The pages on studies, one each, made from the packs beside them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from intarsia.plots import svg
from intarsia.reports.study.option_inference import run_command
from intarsia.studies import seeds_of
from pages import page, table
from study_counting import Verdict, capital, several
from study_missing import missing
from study_packs import Studies, Variant, of_runs
from study_shown import shown_tables
from study_verdicts import pairs, single
from study_verdicts_beyond import continual, controls, unlearning
from study_verdicts_complete import complete
from study_verdicts_impact import impact
from study_verdicts_others import confusion, path
from study_verdicts_steps import sparsity, temperature, width

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
# Options that say how often, with the word for one.
COUNTS = {"seeds": "seed", "pairs": "pair", "orders": "order"}
FIGURES, BYTES = 4, 300_000  # at most so many on a page, and so large
# Words in the names of figures, from what a page should show first on.
FIRST = ("mnist", "shallow", "-imp", "-me-")


def verdicts(studies: Studies) -> dict[str, Verdict]:
    """What every study says."""
    return {name: VERDICTS[name](variants, studies) for name, variants in studies.items()}


def study_files(studies: Studies, said: Mapping[str, Verdict], folder: Path) -> dict[Path, str]:
    """The page of every study that has a pack, and its figures."""
    result = {}
    for name, variants in studies.items():
        figures = chosen_figures(variants[0])
        result[folder / f"study_{name}.md"] = study_page(variants, said[name], list(figures))
        result |= {folder / f"{file}.svg": text for file, text in figures.items()}
    return result


def study_page(variants: Sequence[Variant], said: Verdict, figures: Sequence[str] = ()) -> str:
    """What was asked, how it was measured, what it says; then tables and figures."""
    study = variants[0].study
    parts = [
        study.about,
        _commands(variants),
        _origins(variants),
        said.markdown(),
        *(f"![{study.title}: {_alt(study.name, figure)}]({figure}.svg)" for figure in figures),
    ]
    for variant in variants:
        parts += [f"## {capital(variant.label)}", *shown_tables(variant)]
    return page(study.title, [], *parts)


def chosen_figures(variant: Variant) -> dict[str, str]:
    """A few of the study's figures as SVG text, by the name of their file."""
    drawn = {name: svg(figure) for name, figure in variant.study.figures(variant.measured).items()}
    fit = [name for name, text in drawn.items() if len(text.encode()) < BYTES]
    ranked = sorted(fit, key=lambda name: -sum(word in name for word in FIRST))
    return {f"study_{name}": drawn[name] for name in fit if name in ranked[:FIGURES]}


def _commands(variants: Sequence[Variant]) -> str:
    packs = [(file, pack) for variant in variants for file, pack in variant.packs.items()]
    study = variants[0].study
    lines = [run_command(study, pack.options) for _, pack in packs]
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
                        several(_number(pack.options[key]), word)
                        for key, word in COUNTS.items()
                        if key in pack.options
                    ),
                    f"{runs['modules']:,}",
                    f"{runs['training_seconds']:,.0f}",
                    f"{runs['measuring_seconds']:,.0f}",
                    ", ".join(runs["devices"]),
                    ", ".join(runs["dates"]),
                ]
            )
    versions = [
        ", ".join(f"{name} {number}" for name, number in result.items())
        for result in of_runs(variants, "versions")
    ]
    head = "pack|cells|n|modules trained|s of training|s of measuring|device|date"
    shared = (
        "A module that several studies need is trained once and counted on each page. Seconds are "
        "those of the process that did the work; where several ran on one device at once, each "
        "took longer than alone."
    )
    last = f"Versions: {'; '.join(versions)}. {shared}"
    return "\n\n".join([table(head, rows), *_missing(variants), last])


def _missing(variants: Sequence[Variant]) -> list[str]:
    """Which cells are missing, by pack where there are several; none where it cannot be told."""
    packs = {file: pack for variant in variants for file, pack in variant.packs.items()}
    lines = []
    for file, pack in packs.items():
        if words := missing(pack):
            lines.append(f"Missing{f' in {file}' if len(packs) > 1 else ''}: {words}.")
    return lines


def _number(value: Any) -> int:
    return len(seeds_of(value))


def _alt(name: str, figure: str) -> str:
    return figure.removeprefix(f"study_{name}").strip("-").replace("-", ", ") or name
