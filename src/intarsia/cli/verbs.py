"""Verbs: how a function becomes a command of `intarsia`, and how commands fail."""

import errno
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import partial, wraps
from io import TextIOWrapper
from typing import Any, TypeVar

import typer
from typer.core import TyperGroup

from intarsia.cli.console import harmless, note, say, show_error
from intarsia.errors import (
    DataWarning,
    FileWarning,
    HealthWarning,
    IntarsiaError,
    RecipeWarning,
    StoppedError,
)

STOPPED = 75  # the exit code of what stopped in time and goes on: sysexits' "try again later"
FULL = (errno.ENOSPC, errno.EDQUOT)
JSON = "intarsia.json"  # in a context's meta: whether errors are JSON
# The base of all usage errors, which typer takes from click or has of its own.
UsageError: Any = typer.BadParameter.__mro__[2]

Verb = TypeVar("Verb", bound=Callable[..., Any])


class VerbGroup(TyperGroup):
    """Commands whose errors are one clear line, and Ctrl-C says what to do next.

    With --json among the words an error is one JSON object on stdout, wrong usage too.
    """

    def main(self, args: Sequence[str] | None = None, *more: Any, **settings: Any) -> Any:
        with _careful_output():
            words = sys.argv[1:] if args is None else args
            try:
                if not _wants_json(words) or not settings.get("standalone_mode", True):
                    return super().main(args, *more, **settings)
                code = self._exit_code(args, *more, **{**settings, "standalone_mode": False})
            except BrokenPipeError:  # as of `| head`: nobody reads on
                _discard_output()
                code = 1
            except OSError as error:
                if error.errno not in FULL:
                    raise
                _discard_output()
                say(f"error: the output cannot be written: {error.strerror}; free some space")
                code = 1
            sys.exit(code if isinstance(code, int) else 0)

    def _exit_code(self, *given: Any, **settings: Any) -> Any:
        try:
            return super().main(*given, **settings)
        except UsageError as error:
            show_error(type(error).__name__, error.format_message())
            return error.exit_code

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        as_json = _wants_json(args)
        with _harmless_usage():
            context = super().make_context(info_name, args, parent, **extra)
        context.meta.setdefault(JSON, as_json)
        return context

    def invoke(self, ctx: Any) -> Any:
        try:
            # Verbs report health themselves, in a line without Python in it.
            ignored = warnings.catch_warnings(action="ignore", category=HealthWarning)
            with ignored, _harmless_usage():
                return super().invoke(ctx)
        except IntarsiaError as error:
            message = " ".join(str(error).split())
            stopped = isinstance(error, StoppedError)
            if ctx.meta.get(JSON):
                show_error(type(error).__name__, message)
            else:
                say(message if stopped else f"error: {message}")
            raise typer.Exit(STOPPED if stopped else 1) from None
        except KeyboardInterrupt:
            verb = self.commands.get(ctx.invoked_subcommand)
            resumes = getattr(verb and verb.callback, "resumes", False)
            message = "stopped; the same command resumes" if resumes else "stopped"
            if ctx.meta.get(JSON):
                show_error("KeyboardInterrupt", message)
            else:
                say(f"\n{message}")
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=VerbGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with [bold]intarsia demo[/bold]: ten modules, joined, in under a minute.",
)


def _group(name: str, about: str, first: str, why: str) -> typer.Typer:
    """Verbs of one subject; help ends with the command to begin with."""
    made = typer.Typer(
        cls=VerbGroup,
        no_args_is_help=True,
        rich_markup_mode="rich",
        help=about,
        epilog=f"Begin with [bold]intarsia {name} {first}[/bold]: {why}.",
    )
    app.add_typer(made, name=name)
    return made


study = _group(
    "study",
    "Make a paper's tables and figures: run a study, see its progress, show its results.",
    "run single --scale small",
    "it takes seconds",
)
sweetspot = _group(
    "sweetspot",
    "Pattern networks that draw pictures: fit them, prune them, see what a weight does.",
    "show totem",
    "it needs no download",
)
flow = _group(
    "flow",
    "Cumulants of samples, through the layers of a network, and in the flow of the central limit "
    "theorem.",
    "iterate",
    "it needs no data",
)
graphs = _group(
    "graphs",
    "Graphs at several scales: find a graph's scales, rewire it there, learn its nodes.",
    "scale edges.txt",
    "two node numbers on a line",
)
lens = _group(
    "lens",
    "Entropy through depth: how sure a network is behind each of its layers, and what that tells.",
    "profile model.bin 'Once upon a time'",
    "a llama2.c file, with tok.bin beside it",
)


def verb(*examples: str, group: typer.Typer = app, resumes: bool = False) -> Callable[[Verb], Verb]:
    """Register a function as a command: its name, its docstring, its parameters as options.

    A parameter whose type is a dataclass stands for one option per field. The help ends with the
    `examples`, given without the word intarsia. `resumes` says that the same command goes on
    where Ctrl-C stopped it.
    """

    def register(function: Verb) -> Verb:
        command = _with_fields(function)
        command.resumes = resumes  # type: ignore[attr-defined]
        lines = (f"[bold]intarsia {example}[/bold]" for example in examples)
        name = function.__name__.strip("_")
        group.command(name, epilog="\n\n".join(["Examples:", *lines]))(command)
        return function

    return register


study_verb = partial(verb, group=study)
sweetspot_verb = partial(verb, group=sweetspot)
flow_verb = partial(verb, group=flow)
graphs_verb = partial(verb, group=graphs)
lens_verb = partial(verb, group=lens)


def _with_fields(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the fields of a dataclass in place of a parameter of that type."""
    signature = inspect.signature(function, eval_str=True)
    given = signature.parameters.items()
    groups: dict[str, Any] = {
        name: own.annotation for name, own in given if is_dataclass(own.annotation)
    }

    @wraps(function)
    def command(**values: Any) -> Any:
        for name, kind in groups.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        return function(**values)

    parameters = [
        parameter.replace(kind=parameter.KEYWORD_ONLY)
        for name, own in given
        for parameter in (
            inspect.signature(groups[name], eval_str=True).parameters.values()
            if name in groups
            else [own]
        )
    ]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def _discard_output() -> None:
    """Nothing more goes to stdout, nor what is still to be flushed when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _harmless_usage() -> Iterator[None]:
    """Errors of usage repeat the words they were given: without what a terminal would obey."""
    try:
        yield
    except UsageError as error:
        error.message = harmless(error.message)
        raise


def _wants_json(words: Sequence[str]) -> bool:
    """Whether --json is among the options, those before a lone --."""
    words = list(words)
    return "--json" in (words[: words.index("--")] if "--" in words else words)


@contextmanager
def _careful_output() -> Iterator[None]:
    """Letters that a terminal does not have are escaped, and our warnings of inputs are notes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.simplefilter("default", DataWarning)
        warnings.simplefilter("default", FileWarning)
        warnings.simplefilter("default", RecipeWarning)
        usual = warnings.showwarning

        def show_warning(message: Any, category: Any, *where: Any, **more: Any) -> None:
            if issubclass(category, DataWarning | FileWarning | RecipeWarning):
                note(str(message))
            else:
                usual(message, category, *where, **more)

        warnings.showwarning = show_warning
        yield
