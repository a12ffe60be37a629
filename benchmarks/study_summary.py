"""What the studies say in short: in the README, in the list of results, in the menu."""

from collections.abc import Mapping
from textwrap import fill

from pages import Result, table
from study_beside import Beside
from study_counting import Verdict, listed, sentences
from study_dead import where
from study_packs import Studies, modules_and_seconds, of_runs
from study_verdicts import claim_in_short, comparable

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


def studies_table(said: Mapping[str, Verdict], names: Mapping[str, str]) -> str:
    """What every study says in one line; other pages of these names are linked below."""
    rows = [
        [f"[{name}](study_{name}.md)", SHOWN[name], result.line.replace("|", "\\|")]
        for name, result in said.items()
    ]
    parts = [table("study|the paper shows|verdict", rows)] if rows else []
    others = [name for name in names if name.removeprefix("study_") not in said]
    return "\n\n".join([*parts, *(f"[{names[name]}]({name}.md)" for name in others)])


def studies_in_short(
    studies: Studies, said: Mapping[str, Verdict], speed: Result | None = None
) -> str:
    """What reproduces, what it took and the command with its time, for the README."""
    words = []
    if "single" in studies and "pairs" in studies:
        one, two = Beside(studies["single"], "Table 1"), Beside(studies["pairs"], "Table 4")
        words.append(
            f"Of the numbers that the paper printed, {one.met()} in Table 1 and {two.met()} in "
            "Table 4 are met within two of its standard deviations; "
            f"{claim_in_short(comparable(studies['pairs'][0])[0])}."
        )
        if dead := [*one.dead, *two.dead]:
            words.append(
                f"Groups in which pruning cut every module through ({where(dead)}) are not counted."
            )
    if "complete" in studies:
        words.append(f"Complete merges with pruning: {said['complete'].line}.")
    if "pairs" in studies:
        modules, seconds = modules_and_seconds(studies["pairs"])
        words.append(
            f"The {modules:,} modules of Tables 2 and 4 took {seconds:,.0f} s of training on "
            f"{listed(of_runs(studies['pairs'], 'devices'))}."
        )
    if not words:
        return ""
    end = "All verdicts are in [results](docs/results/index.md#studies)."
    shown = fill(sentences(*words, end), 119, break_on_hyphens=False, break_long_words=False)
    mark = "<!-- not run: MNIST in the paper's size takes a GPU -->"  # for benchmarks/examples.py
    return f"## The paper, checked\n\n{shown}\n\n{mark}\n\n```bash\n{_example(speed)}\n```"


def _example(speed: Result | None) -> str:
    """A command, and how long it takes where that was timed."""
    if not speed:
        return "intarsia study run pairs --data mnist --models shallow"
    study = speed["study"]
    return (
        f"intarsia study run pairs --data {study['data']} --models {study['model']}  "
        f"# {study['seconds']:,.0f} s on {speed['machine']}"
    )


def navigation(names: Mapping[str, str]) -> str:
    """Lines of mkdocs.yml for pages by their titles; none where there are none."""
    lines = [f'          - "{title}": results/{name}.md' for name, title in names.items()]
    return "\n".join(["      - Studies:", *lines]) if lines else ""


def titles(studies: Studies) -> dict[str, str]:
    """The names of all pages with their titles."""
    return {f"study_{name}": variants[0].study.title for name, variants in studies.items()}
