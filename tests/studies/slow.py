"""The toy with cells and banks that take long enough to be hit, for tests that kill."""

import dataclasses
import time

import toy

from intarsia.errors import CompositionError
from intarsia.studies import Cell, register

OPTIONS = {
    "objectives": ["me", "xe"],
    "seeds": 2,
    "scale": 1.0,
    "recipe": {**toy.RECIPE, "epochs": 10},
    "seconds": 0.3,
    "fails": False,
}


def cells(options, context):
    own = {key: options[key] for key in ("seconds", "fails")}
    return [
        Cell("slow", {**cell.settings, **own}, cell.banks) for cell in toy.cells(options, context)
    ]


def measure(cell, context):
    time.sleep(cell.settings["seconds"])
    if cell.settings["fails"]:
        raise CompositionError("the pieces do not fit")
    return toy.measure(cell, context)


SLOW = register(
    dataclasses.replace(
        toy.TOY, name="slow", scales={"small": OPTIONS}, cells=cells, measure=measure
    )
)
