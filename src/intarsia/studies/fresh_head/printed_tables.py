"""What the fresh-head paper printed, seed by seed, out of fresh_head.json: of other backbones.

Its claims to be checked here are directions; the absolute values belong to its backbones.
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from intarsia.studies.tables import Entry, Paper, Spread, Table

NOTE = (
    "printed numbers for other backbones, at 224 px, on CIFAR-100 in 5 tasks: not a target for the "
    "networks above, only the directions compare; mean (standard deviation) over the seeds that "
    "the paper prints"
)


def printed_fresh_heads() -> Table:
    """Native, fresh, joint and the recovered fraction, by backbone, partition and method."""
    rows: list[list[Entry]] = []
    groups: dict[tuple[str, ...], list[list[float]]] = {}
    for backbone, partition, method, _, *numbers in _content()["fresh_head"]:
        groups.setdefault((backbone, partition, method), []).append(numbers)
    for key, values in groups.items():
        rows.append([*key, *(_number(column) for column in zip(*values, strict=True)), len(values)])
    columns = ["backbone", "tasks", "method", "native head", "fresh head", "joint", "recovered"]
    columns += ["seeds"]
    return Table("The paper's fresh heads, for other backbones", columns, rows, [NOTE, _source()])


def printed_geometry() -> Table:
    """The naive ensemble and the centroid composer, by backbone and partition."""
    rows: list[list[Entry]] = []
    groups: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for backbone, partition, _, ensemble, composer in _content()["geometry"]:
        groups.setdefault((backbone, partition), []).append((ensemble, composer))
    for key, values in groups.items():
        numbers = [[e for e, _ in values], [c for _, c in values], [c - e for e, c in values]]
        rows.append([*key, *map(_number, numbers), len(values)])
    columns = ["backbone", "tasks", "ensemble", "composer", "composer - ensemble", "seeds"]
    return Table("The paper's composer, for other backbones", columns, rows, [NOTE, _source()])


def _number(values: Any) -> Paper:
    spread = Spread.of(values)
    return Paper(round(spread.mean, 4), round(spread.sd, 4))


def _source() -> str:
    return f"source: {_content()['source']}"


@cache
def _content() -> dict[str, Any]:
    text = files("intarsia.studies.fresh_head").joinpath("fresh_head.json").read_text("utf-8")
    content: dict[str, Any] = json.loads(text)
    return content
