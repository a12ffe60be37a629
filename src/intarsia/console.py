"""How the command line speaks: tables for people, one JSON object for machines, one-line errors."""

import json
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from intarsia.errors import IntarsiaError

RESUMING = ("train", "demo")


class Verbs(TyperGroup):
    """The commands; an error of ours is one clear line, and Ctrl-C says what to do next."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except IntarsiaError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            again = "; the same command resumes" if ctx.invoked_subcommand in RESUMING else ""
            print(f"\nstopped{again}", file=sys.stderr)
            raise typer.Exit(130) from None


def show(*parts: RenderableType) -> None:
    """Print for people: tables to the window's width, lines as they are, to be copied."""
    width = None if sys.stdout.isatty() else 110
    console = Console(width=width, highlight=False)
    for part in parts:
        if isinstance(part, str):
            console.print(part, markup=False, soft_wrap=True)
        else:
            console.print(part)


def note(line: str) -> None:
    """A remark beside the result, on stderr."""
    print(line, file=sys.stderr)


def show_json(value: Any) -> None:
    print(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False))


def show_plan(recipe: Any, modules: int | None) -> None:
    """A resolved recipe, as YAML, and how many modules it makes."""
    import yaml

    show(yaml.safe_dump(recipe.as_dict(), sort_keys=False).rstrip())
    show(f"modules: {modules if modules is not None else f'unknown until {recipe.data} is here'}")


def show_facts(found: dict[str, Any]) -> None:
    """Everything but the tables."""
    skipped = ("parts", "tensors", "provenance")
    rows = [(k.replace("_", " "), plain_text(v)) for k, v in found.items() if k not in skipped]
    learned = [(k, plain_text(v)) for k, v in found.get("provenance", {}).items()]
    show(facts(row for row in [*rows, *learned] if row[1]))


def show_scores(scores: dict[str, Any], confusion: bool) -> None:
    """Evaluations by name: one in full, several a row each."""
    from intarsia.measure import figure

    each = list(scores.values())
    if len(each) == 1:
        show(each[0])
    else:
        rows = [(n, figure(s.accuracy), figure(s.entropy)) for n, s in scores.items()]
        show(table(["module", "rewarded accuracy", "non-rewarded entropy"], rows))
        show(_means([vars(s) for s in each]) + f" of {each[0].ceiling:.4f}")
    for name, score in scores.items() if confusion else ():
        counts = zip(score.catalogue, score.confusion.tolist(), strict=True)
        title = f"{name}: true class by answer"
        show(table(["", *score.catalogue], [(c, *row) for c, row in counts], title))


def show_bank(found: dict[str, Any]) -> None:
    """The modules of a bank with the scores of their training; those that diverged by name."""
    from intarsia.measure import figure

    modules = found["modules"]
    rows = [
        (m["name"], figure(m["accuracy"]), figure(m["entropy"]), f"{m['density']:.2%}", m["bytes"])
        for m in modules
    ]
    ceiling = f"entropy (of {found['ceiling']:.3f})" if modules else "entropy"
    show(
        f"{found['architecture'] or 'no module'}; scores on validation data",
        table(["module", "accuracy", ceiling, "density", "bytes"], rows),
        _means(modules),
        f"engine: {found['engine']} on {found['device']}",
    )
    for name in found["diverged"]:
        note(f"module {name!r} diverged and is kept out: lower its learning rate")


def show_demo(found: Any) -> None:
    """The demo's findings: each module, all of them joined, one taken out."""
    from intarsia.measure import figure

    taken = found.removal
    show(
        table(
            ["module", "accuracy", f"entropy (of {found.ceiling:.3f})", "density", "bytes"],
            [
                (m.name, figure(m.accuracy), figure(m.entropy), f"{m.density:.1%}", f"{m.bytes:,}")
                for m in found.modules
            ],
            "Each module: accuracy on its own digit, entropy on the others",
        ),
        table(
            ["all ten digits", "accuracy", "networks run", "parameters"],
            [(r.name, figure(r.accuracy), r.networks, f"{r.parameters:,}") for r in found.rows],
            "Joined without training, beside one network trained on all",
        ),
        table(
            ["weights added", f"accuracy on {taken.name}", "entropy there", "accuracy on the rest"],
            [
                (when, *map(figure, figures))
                for when, *figures in zip(
                    ("whole", f"without {taken.name}", "put back"),
                    taken.accuracy,
                    taken.entropy,
                    taken.others,
                    strict=True,
                )
            ],
            f"Digit {taken.name} taken out and put back"
            + (": the same bits" if taken.same_bits else ": NOT the same bits"),
        ),
        f"test data, {found.test_samples} samples; engine: {found.engine}",
    )


def table(
    headings: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None
) -> Table:
    """Text left, numbers right; the first column is always text."""
    texts = [[str(cell) for cell in row] for row in rows]
    made = Table(title=None if title is None else Text(title, "bold"), title_justify="left")
    for place, heading in enumerate(headings):
        numbers = place > 0 and all(_is_number(row[place]) for row in texts)
        made.add_column(Text(heading), justify="right" if numbers else "left", overflow="fold")
    for row in texts:
        made.add_row(*map(Text, row))  # Text: a class may be called [red]
    return made


def facts(pairs: Iterable[tuple[str, Any]]) -> Table:
    """Names and values, one pair a line."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(Text(name, "bold"), Text(str(value)))
    return grid


def plain_text(value: Any) -> str:
    """A value of a JSON object as people write it; nothing for what is not there."""
    if isinstance(value, dict):
        return ", ".join(f"{k} {plain_text(v)}" for k, v in value.items() if v not in (None, {}))
    if isinstance(value, list):
        return ", ".join(map(plain_text, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else str(value)


def spread(values: Iterable[float | None]) -> str:
    """Mean and standard deviation of what is there."""
    known = [v for v in values if v is not None and not math.isnan(v)]
    if not known:
        return "-"
    mean = f"{statistics.fmean(known):.4f}"
    return mean if len(known) == 1 else f"{mean} ± {statistics.stdev(known):.4f}"


def _means(rows: list[dict[str, Any]]) -> str:
    accuracy, entropy = (spread([row[k] for row in rows]) for k in ("accuracy", "entropy"))
    return f"{len(rows)} modules, mean ± deviation: accuracy {accuracy}, entropy {entropy}"


def _is_number(text: str) -> bool:
    return text == "-" or text[:1].isdigit()
