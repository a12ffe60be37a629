"""Write the pages on studies from the archives in docs/results.

    python docs/build/studies.py

reads study_*.json and writes study_*.md and their figures beside them, the lines on studies in the
README, in the list of results and in the menu. A study without an archive has no page. What a page
says of a study is the study's own verdict: nothing is computed here.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import islice
from pathlib import Path
from textwrap import fill
from typing import Any

from intarsia.plots import svg
from intarsia.studies import STUDIES, Findings, Measured, Study, Table, Verdict, seeds_of
from intarsia.studies.archive import FORMAT, Archive, load_archive
from intarsia.studies.options import run_command, variant_label
from intarsia.studies.wording import capital, listed, sentences, several
from pages import README, RESULTS, ROOT, Result, filled, met, page, table

INDEX, SITE = RESULTS / "index.md", ROOT / "mkdocs.yml"
IN_README = ("single", "pairs", "complete")
NEIGHBOURS = ("fresh_head", "graphs", "sweetspot", "flow", "lens")  # of other papers, as a table
# Options that say how often, with the word for one.
COUNTS = {"seeds": "seed", "pairs": "pair", "orders": "order"}
FIGURES, BYTES = 4, 300_000  # at most so many on a page, and so large
# Words in the names of figures, from what a page should show first on.
FIRST = ("mnist", "shallow", "-imp", "-me-")
MANY = 4  # tables, above which notes that they share stand once, before them
SPEED_TITLE = "Speed and crash safety of studies"
POINTS = 12  # of all claims, above which they have a section of their own


def write_study_pages() -> None:
    """Write every file that is made here."""
    for path, text in written().items():
        path.write_text(text)
        print(path.relative_to(ROOT))


def written(results: Path = RESULTS) -> dict[Path, str]:
    """Every file that is made here, and what it should hold; archives are read from `results`."""
    studies = read_studies(results)
    verdicts = verdicts_of(studies)
    titles = {f"study_{name}": variants[0].study.title for name, variants in studies.items()}
    files: dict[Path, str] = {}
    for name, variants in studies.items():
        figures = chosen_figures(variants[0])
        files[results / f"study_{name}.md"] = study_page(variants, verdicts[name], list(figures))
        files |= {results / f"{file}.svg": text for file, text in figures.items()}
    speed, kills = (_load(results / f"study_{name}.json") for name in ("speed", "kills"))
    if speed or kills:
        targets = _load(RESULTS / "targets.json") or {}
        files[results / "study_speed.md"] = speed_page(speed, kills, targets)
        titles["study_speed"] = SPEED_TITLE
    return {
        **files,
        README: filled(README, {"studies": readme_lines(studies, verdicts, speed)}),
        INDEX: filled(INDEX, {"studies": index_table(verdicts, titles)}),
        SITE: filled(SITE, {"studies": navigation(titles)}, "      # {}", "\n"),
    }


@dataclass(frozen=True)
class Variant:
    """All archives of a study that were made with one preset and recipe, as one."""

    study: Study
    label: str
    archives: Mapping[str, Archive]  # by the name of the file

    @cached_property
    def measured(self) -> list[Measured]:
        """The cells of all archives, each once."""
        cells = [cell for archive in self.archives.values() for cell in archive.measured]
        return list({json.dumps(cell.settings, sort_keys=True): cell for cell in cells}.values())

    @property
    def runs(self) -> list[dict[str, Any]]:
        return [archive.runs for archive in self.archives.values()]


Studies = Mapping[str, Sequence[Variant]]


def read_studies(folder: Path) -> dict[str, list[Variant]]:
    """Every study that has an archive in the folder; of its variants the paper's preset first."""
    paths = sorted(folder.glob("study_*.json"))
    read = {path.name: _archive(path, path.stat().st_mtime_ns) for path in paths}
    archives = {name: archive for name, archive in read.items() if archive is not None}
    studies = {}
    for name, study in STUDIES.items():
        groups: dict[tuple[bool, str], dict[str, Archive]] = {}
        for file, archive in archives.items():
            if archive.study == name and archive.measured:
                label = variant_label(study, archive.options)
                key = (archive.options.get("preset", "paper") != "paper", label)
                groups.setdefault(key, {})[file] = archive
        if groups:
            studies[name] = [Variant(study, key[1], own) for key, own in sorted(groups.items())]
    return studies


@cache
def _archive(path: Path, changed: int) -> Archive | None:
    """An archive, read once for as long as its file is left alone; None for any other file."""
    is_archive = json.loads(path.read_bytes()).get("format") == FORMAT["format"]
    return load_archive(path) if is_archive else None


def verdicts_of(studies: Studies) -> dict[str, Verdict]:
    """What every study says, with its variants and the other studies at hand."""
    cells = {name: {v.label: v.measured for v in own} for name, own in studies.items()}
    verdicts = {}
    for name, (main, *others) in studies.items():
        findings = Findings(main.measured, main.label, {v.label: v.measured for v in others}, cells)
        missing = [  # counted, not named: to name cells takes data that may not be at hand
            f"{file}: {several(archive.missing, 'cell')}"
            for variant in studies[name]
            for file, archive in variant.archives.items()
            if archive.missing
        ]
        verdicts[name] = main.study.judge(findings, missing)
    return verdicts


def study_page(variants: Sequence[Variant], verdict: Verdict, figures: Sequence[str] = ()) -> str:
    """The question, the findings in words and figures, how they were measured, and the tables."""
    study, points = variants[0].study, verdict.details
    nested = len(points) <= POINTS
    parts = [
        study.about,
        "## Findings",
        verdict.markdown(details=nested),
        *(f"![{study.title}: {_alt(study.name, figure)}]({figure}.svg)" for figure in figures),
        *([] if nested else ["## Findings in detail", "\n".join(f"- {point}" for point in points)]),
        "## How it was measured",
        _commands(variants),
        _origins(variants),
    ]
    for variant in variants:
        label = f": {variant.label}" * (variant.label != Findings.label)
        parts += [f"## Tables{label}", *tables_markdown(study.tables(variant.measured))]
    return page(study.title, [], *parts)


def chosen_figures(variant: Variant) -> dict[str, str]:
    """A few of the study's figures, by the name of their file."""
    figures = variant.study.figures(variant.measured)
    ranked = sorted(figures, key=lambda name: -sum(word in name for word in FIRST))
    drawn = ((name, svg(figures[name])) for name in ranked)  # no more than are wanted
    fit = ((name, text) for name, text in drawn if len(text.encode()) < BYTES)
    chosen = dict(islice(fit, FIGURES))
    return {f"study_{name}": chosen[name] for name in figures if name in chosen}


def aims_and_tables(variant: Variant) -> list[str]:
    """A study's targets, its further findings, and its tables."""
    claims = variant.study.judge(Findings(variant.measured, variant.label)).claims
    aims = [claim for claim in claims if "aim" in claim.evidence]
    rows = [[c.evidence["aim"], c.evidence["measured"], c.n, met(bool(c.holds))] for c in aims]
    others = [f"- {claim.marked}" for claim in claims if claim not in aims]
    details = [f"- {point}" for claim in claims for point in claim.details]
    return [
        "## Targets",
        table("target|measured|n|verdict", rows),
        "## Further findings",
        "\n".join([*others, *details]),
        "## Tables",
        *tables_markdown(variant.study.tables(variant.measured)),
    ]


def tables_markdown(tables: Sequence[Table]) -> list[str]:
    """Markdown of the tables: rows that another table has too stand there alone."""
    own = [table for table in tables if not table.included_in]
    words = [
        f"All rows of {table.title.partition(':')[0]} are also in "
        f"{table.included_in.partition(':')[0]}."
        for table in tables
        if table.included_in
    ]
    if len(own) > MANY:
        shared, own = _shared_notes(own)
        words += [f"Notes on the tables below:\n\n{shared}"] if shared else []
    return [*words, *(table.markdown().rstrip() for table in own)]


def _shared_notes(tables: Sequence[Table]) -> tuple[str, list[Table]]:
    """Notes of several tables as one list, and the tables with those of their own alone."""
    having = {
        note: [t.title for t in tables if note in t.notes] for t in tables for note in t.notes
    }
    shared = {note: titles for note, titles in having.items() if len(titles) > 1}
    lines = []
    for note, titles in shared.items():
        kinds = {title.rpartition(": ")[2] for title in titles}
        kind = f"{kinds.pop()}: " if len(titles) < len(tables) and len(kinds) == 1 else ""
        lines.append(f"- {kind}{note}")
    own = [replace(t, notes=[note for note in t.notes if note not in shared]) for t in tables]
    return "\n".join(lines), own


def _commands(variants: Sequence[Variant]) -> str:
    archives = {file: archive for v in variants for file, archive in v.archives.items()}
    study = variants[0].study
    lines = [run_command(study, archive.options) for archive in archives.values()]
    lines += [f"intarsia study table {study.name} --from docs/results/{file}" for file in archives]
    return "\n".join(f"    {line}" for line in lines)


def _origins(variants: Sequence[Variant]) -> str:
    """Where the cells come from and how long they took, archive by archive."""
    rows = []
    for variant in variants:
        for file, archive in variant.archives.items():
            runs, options = archive.runs, archive.options
            counts = {
                word: seeds_of(options[key]) for key, word in COUNTS.items() if key in options
            }
            missing = f", {archive.missing} missing" if archive.missing else ""
            rows.append(
                [
                    f"[{file}]({file})",
                    f"{len(archive.measured)}{missing}",
                    ", ".join(several(len(values), word) for word, values in counts.items()),
                    f"{runs['modules']:,}",
                    f"{runs['training_seconds']:,.0f}",
                    f"{runs['measuring_seconds']:,.0f}",
                    ", ".join(runs["devices"]),
                    ", ".join(runs["dates"]),
                ]
            )
    versions = [
        ", ".join(f"{name} {number}" for name, number in own.items())
        for own in _of_runs(variants, "versions")
    ]
    head = "archive|cells|n|modules trained|training, s|cells, s|device|date"
    shared = (
        "A module that several studies need is trained once and counted on each of their pages. A "
        "cell measures, and sometimes first trains what is in no bank, such as experts or new "
        "heads. Times are those of the process that did the work; if several ran on one device at "
        "once, each took longer than it would have alone."
    )
    return f"{table(head, rows)}\n\nVersions: {'; '.join(versions)}. {shared}"


def _of_runs(variants: Iterable[Variant], key: str) -> list[Any]:
    """What the runs of all archives have under a key, each once."""
    values: list[Any] = []
    for variant in variants:
        for runs in variant.runs:
            values += [value for value in runs[key] if value not in values]
    return values


def _alt(name: str, figure: str) -> str:
    return figure.removeprefix(f"study_{name}").strip("-").replace("-", ", ") or name


# Lines of the README, of the list of results, of the menu


def readme_lines(
    studies: Studies, verdicts: Mapping[str, Verdict], speed: Result | None = None
) -> str:
    """What the papers' tables come to, what they took and the command with its time."""
    points = [
        f"- **{capital(studies[name][0].study.title)}**: {verdicts[name].line}."
        for name in IN_README
        if name in studies
    ]
    if not points:
        return ""
    words = []
    if "pairs" in studies:
        runs = [own for variant in studies["pairs"] for own in variant.runs]
        words.append(
            f"Training the {sum(own['modules'] for own in runs):,} modules of Tables 2 and 4 took "
            f"{sum(own['training_seconds'] for own in runs):,.0f} s on "
            f"{listed(_of_runs(studies['pairs'], 'devices'))}."
        )
    others = listed([f"[{n}](docs/results/study_{n}.md)" for n in NEIGHBOURS if n in verdicts])
    if others:
        words.append(f"Related papers have studies of their own: {others}.")
    end = "[Results](docs/results/index.md#studies) has all verdicts."
    wrapped = partial(fill, width=119, break_on_hyphens=False, break_long_words=False)
    found = "\n".join(wrapped(point, subsequent_indent="  ") for point in points)
    text = f"{found}\n\n{wrapped(sentences(*words, end))}"
    mark = "<!-- not run: MNIST in the paper's size takes a GPU -->"  # for docs/build/examples.py
    parts = ["## Checked against the papers", text, f"{mark}\n\n```bash\n{_example(speed)}\n```"]
    return "\n\n".join(parts)


def _example(speed: Result | None) -> str:
    """A command, and how long it takes where that was timed."""
    if not speed:
        return "intarsia study run pairs --data mnist --models shallow"
    study, seeds = speed["study"], re.search(r" --seeds \d+", speed["command"])
    return (
        f"intarsia study run pairs --data {study['data']} --models {study['model']}"
        f"{seeds[0] if seeds else ''}  # {study['seconds']:,.0f} s on {speed['machine']}"
    )


def index_table(verdicts: Mapping[str, Verdict], titles: Mapping[str, str]) -> str:
    """What every study says in one line; other pages with these titles are linked below."""
    rows = [
        [f"[{name}](study_{name}.md)", STUDIES[name].paper, verdict.line.replace("|", "\\|")]
        for name, verdict in verdicts.items()
    ]
    parts = [table("study|what the paper shows|verdict", rows)] if rows else []
    others = [name for name in titles if name.removeprefix("study_") not in verdicts]
    return "\n\n".join([*parts, *(f"[{titles[name]}]({name}.md)" for name in others)])


def navigation(titles: Mapping[str, str]) -> str:
    """Lines of mkdocs.yml for pages by their titles; none where there are none."""
    lines = [f'          - "{title}": results/{name}.md' for name, title in titles.items()]
    return "\n".join(["      - Studies:", *lines]) if lines else ""


# How long studies take, and how safe they are


def speed_page(speed: Result | None, kills: Result | None, targets: Result) -> str:
    """Either part is left out if it has not been measured."""
    parts: list[str] = []
    if speed:
        parts += ["## Speed", *_speed(speed, targets["study_speed"])]
    if kills:
        parts += ["## Crash safety", *_kills(kills, targets["study_kills"])]
    return page(SPEED_TITLE, [result for result in (speed, kills) if result], *parts)


# Ways that train one module after another, the strictest first.
SPEED_WAYS = {
    "graph": "an expert's loop on resident tensors with fused Adam, its step a CUDA graph",
    "expert": "an expert's loop on resident tensors with fused Adam, step by step",
    "plain": "a plain loop on resident tensors",
    "usual": "the usual loop with a data loader and per-sample transforms",
}


def _speed(result: Result, target: Result) -> Sequence[str]:
    ours, ratios = result["study"], result["ratios"]
    left = _left_out(result["ways"])
    ways = {n: result["ways"][n] for n in SPEED_WAYS if n in result["ways"] and n not in left}
    total = result["extrapolated_seconds"]
    rows = [
        ["the study", "measured", f"{ours['seconds']:,.0f}", "1"],
        *(
            [f"{name} way", "extrapolated", f"{total[name]:,.0f}", f"{ratios[name]:,.0f}"]
            for name in ways
        ),
    ]
    named = listed([f"`{name}`, {SPEED_WAYS[name]}" for name in ways])
    timed = "; ".join(f"{n} {way['seconds_per_module_epoch']:.3f} s" for n, way in ways.items())
    times = next(iter(ways.values()))["all_seconds_per_module_epoch"]
    experts = [f"The {n} way takes {ratios[n]:,.0f} times as long." for n in EXPERTS if n in ways]
    verdict = "; ".join(
        f"the {name} way takes {ratios[name]:,.0f} times as long; the target of {least} times is "
        f"{met(ratios[name] >= least)}"
        for name, least in target.items()
    )
    return [
        "How long does a study take, compared with training its modules one after another? Table "
        f"4 for {ours['model']} networks on {ours['data']}, from an empty store: "
        f"{ours['modules']:,} modules are trained, {_module_epochs(ours)}, and {ours['cells']} "
        f"cells measured in {ours['seconds']:,.0f} s, of which {ours['training_seconds']:,.0f} s "
        f"are training and {ours['measuring_seconds']:,.0f} s measuring. This is compared with "
        f"ways that train one module after another on the same device: {named}. These were timed "
        f"for {_epochs(ways)} of one module, fastest of {len(times)} ({timed} per epoch), and "
        "extrapolated to the modules and epochs of the study, without any measuring:",
        table("way|measured or extrapolated|seconds|ratio to the study", rows),
        *left.values(),
        " ".join([*experts, f"{capital(verdict)}.{_too_many(ours)}"]),
    ]


EXPERTS = ("graph", "expert")


def _epochs(ways: Result) -> str:
    """How many epochs the other ways were timed for."""
    counts = {way["epochs"] for way in ways.values() if "epochs" in way}
    few, many = min(counts, default=1), max(counts, default=1)
    return "an epoch" if many == 1 else f"{few} to {many} epochs" if few < many else f"{few} epochs"


def _module_epochs(study: Result) -> str:
    """The module-epochs of a study: by samples, or in older results every epoch alike."""
    if "epochs_of_modules" not in study:
        return f"{study['module_epochs']:,} module-epochs"
    return (
        f"{study['epochs_of_modules']:,} epochs of modules, which are {study['module_epochs']:,} "
        "module-epochs over all samples, since some modules see only the samples of their own "
        "classes"
    )


def _too_many(study: Result) -> str:
    if "epochs_of_modules" in study:
        return ""
    return (
        " In this run every epoch counts alike, even if a module saw only the samples of its own "
        "classes, so the ratio is too high; and an expert's loop was not timed."
    )


def _left_out(ways: Result) -> dict[str, str]:
    """The plain way where it comes out slower than the usual one, which its loop cannot be."""
    key = "seconds_per_module_epoch"
    if not {"usual", "plain"} <= set(ways) or ways["plain"][key] <= ways["usual"][key]:
        return {}
    plain = ways["plain"]
    epochs = round(plain["seconds"] / plain[key] / plain["modules"])
    return {
        "plain": "The plain way, the same loop on resident tensors, is left out: its "
        f"{plain[key]:.3f} s come from one whole run of {epochs} epochs, which is too short to be "
        "reliable; a large part of it is overhead outside the epochs, such as starting the device."
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
        "Is a study that is killed again and again the same in the end? A study on digits is "
        "killed (kill -9) at random moments and restarted until it finishes, by one process and "
        f"by two that share a store. Then its {result['files']} files of cells and banks, "
        f"{result['bytes']:,} bytes, are compared with those of an undisturbed run, which takes "
        f"{result['undisturbed_seconds']:.1f} s.",
        table(
            "processes at once|kills|cells finished by the last kill|cells repeated|same bytes",
            rows,
        ),
        f"By the last kill of a run, {min(done)} to {max(done)} of its {cells} cells were "
        "finished: the kills fall before that point, and the rest runs undisturbed. If a run "
        "finishes before it has had all its kills, another one is started in an empty store.",
        f"The target of {target['kills']} kills with the same bytes is "
        f"{met(enough and result['equal'])}.",
    ]


def _load(path: Path) -> Result | None:
    return json.loads(path.read_text()) if path.exists() else None


if __name__ == "__main__":
    write_study_pages()
