"""What a shell is offered: verbs and names, soon."""

import inspect
import json
import subprocess
import sys
from typing import get_args

from typer.testing import CliRunner

from intarsia.cli import completion
from intarsia.cli.app import app

# What completes the last word of each line, in one process: starting one takes longest.
SCRIPT = """
import contextlib, io, json, os, sys
from intarsia.cli.app import main
offered = {}
for words in json.loads(sys.argv[1]):
    count = str(len(words.split(" ")) - 1)
    os.environ |= {"_INTARSIA_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": count}
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        main()
    offered[words] = said.getvalue().split()
heavy = {"torch", "sklearn", "numpy"} & set(sys.modules)
print(json.dumps([offered, sorted(heavy)]))
"""
EXPECTED = {
    "intarsia comp": {"compose", "compact", "compatibility"},
    "intarsia study ": {"list", "run", "status", "table", "figure", "archive", "restore"},
    "intarsia compose m -o x --operator lo": {"logits", "logit_mean", "logit_weighted"},
    "intarsia train --data mn": {"mnist"},
    "intarsia train --preset ": set(completion.PRESETS),
    "intarsia train --negatives n": {"noise", "none"},
    "intarsia train --model re": {"resnet18"},
    "intarsia train --optimiser ad": {"adam", "adamw"},
    "intarsia train --features eff": {"efficientnet_lite0"},
    "intarsia evaluate x --split t": {"train", "test"},
    "intarsia evaluate x --set mis": {"missing="},
    "intarsia probe x --protocol l": {"literal"},
    "intarsia study run pa": {"pairs", "path"},
    "intarsia study run pairs --data mnist,h": {"mnist,har"},
    "intarsia train --tar": {"--target"},
}


def test_verbs_and_names_are_completed_without_torch() -> None:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(list(EXPECTED))], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    offered, heavy = json.loads(run.stdout)
    assert {words: set(names) for words, names in offered.items()} == EXPECTED
    assert heavy == []


def test_the_shell_can_be_shown_what_to_install() -> None:
    said = CliRunner().invoke(app, ["--help"]).stdout
    assert "--install-completion" in said
    assert "--show-completion" in said


def test_names_are_those_of_the_registries() -> None:
    from intarsia.artifacts import ALL_SPLITS, SPLITS
    from intarsia.composition import OPERATORS
    from intarsia.composition.alignment.align import How
    from intarsia.data import DATASETS, NEGATIVES, load_data
    from intarsia.encoders import ENCODERS
    from intarsia.flow import LAWS, UNITS
    from intarsia.flow.pair_fits import LOSSES
    from intarsia.flow.pair_networks import FORMS
    from intarsia.flow.propagation import CLOSURES
    from intarsia.graphs import GRAPH_SETS
    from intarsia.lens.profiles import TEXT_POSITIONS
    from intarsia.measure.probe.fresh_head import ProbeProtocol
    from intarsia.models import MODELS
    from intarsia.objectives import OBJECTIVES
    from intarsia.pruning import PRUNINGS
    from intarsia.specs import Registry
    from intarsia.studies import STUDIES
    from intarsia.sweetspot import ARMS, PATTERN_OPTIMISERS
    from intarsia.sweetspot.targets import NAMES
    from intarsia.training.engines.select import ENGINES, EXECUTORS
    from intarsia.training.settings.batches import BATCHES
    from intarsia.training.settings.optimisers import OPTIMISERS
    from intarsia.training.settings.presets import PRESETS
    from intarsia.training.settings.schedules import SCHEDULES

    def ours(registry: Registry) -> list[str]:
        """Without what tests have registered."""
        homes = {n: getattr(entry, "cells", entry).__module__ for n, entry in registry.items()}
        return [name for name, home in homes.items() if home.startswith("intarsia.")]

    options = [key for key in inspect.signature(load_data).parameters if key not in ("source", "y")]
    for known, names in (
        ([*SPLITS, ALL_SPLITS], completion.SPLITS),
        (["auto", *ours(OPERATORS)], completion.OPERATORS),
        (get_args(How), completion.ALIGNMENTS),
        (ours(DATASETS), completion.DATASETS),
        (options, completion.DATA_OPTIONS),
        (ours(ENCODERS), completion.ENCODERS),
        (ours(MODELS), completion.MODELS),
        (["none", *ours(NEGATIVES)], completion.NEGATIVES),
        (ours(OBJECTIVES), completion.OBJECTIVES),
        (get_args(ProbeProtocol), completion.PROTOCOLS),
        (ours(PRUNINGS), completion.PRUNINGS),
        (ours(ARMS), completion.ARMS),
        (ours(STUDIES), completion.STUDIES),
        (["auto", *ours(ENGINES), *EXECUTORS], completion.ENGINES),
        (ours(PRESETS), completion.PRESETS),
        (ours(BATCHES), completion.BATCHES),
        (ours(OPTIMISERS), completion.OPTIMISERS),
        (ours(PATTERN_OPTIMISERS), completion.PATTERN_OPTIMISERS),
        (NAMES, completion.PATTERNS),
        (GRAPH_SETS, completion.GRAPH_SETS),
        (ours(SCHEDULES), completion.SCHEDULES),
        (ours(LAWS), completion.LAWS),
        (ours(UNITS), completion.UNITS),
        (LOSSES, completion.PAIR_LOSSES),
        (FORMS, completion.FORMS),
        (TEXT_POSITIONS, completion.LENS_POSITIONS),
        (CLOSURES, completion.CLOSURES),
    ):
        assert sorted(names) == sorted(known)
