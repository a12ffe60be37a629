"""Cells: the resumable units of a study, known by the digest of everything that defines them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from intarsia.files import digest_of
from intarsia.studies.plans import Plan, identity

DATA_OPTIONS = "data_options"  # the setting that says how data are loaded; none: as usual
DIGITS = 6  # of a result; more would differ between machines and mean nothing


@dataclass(frozen=True)
class Cell:
    """What is measured, and on which banks.

    The key covers every setting, given or left at its default, so that a changed default is another
    cell. A setting that a study gained later is left out at its neutral value, where it changes
    nothing, so that older cells stay. `version` is that of the study's measuring code.
    """

    study: str
    settings: Mapping[str, Any]
    banks: Mapping[str, Plan]
    neutral: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1

    @cached_property
    def key(self) -> str:
        banks = {role: plan.key for role, plan in self.banks.items()}
        later = [self.version] if self.version > 1 else []
        return digest_of([self.study, identity(self.settings, self.neutral), banks, *later])

    def __str__(self) -> str:
        return f"{self.study} {short(self.settings)}"


@dataclass(frozen=True)
class Measured:
    """A finished cell, as tables and figures get it."""

    settings: Mapping[str, Any]
    result: Mapping[str, Any]
    key: str = ""


def rounded(value: Any) -> Any:
    """Plain values with every number cut to a few digits."""
    if isinstance(value, Mapping):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.{DIGITS}g}")
    return value


def short(settings: Mapping[str, Any]) -> str:
    """Settings as one line: what is text or number, without what is longer."""
    parts = [f"{k}={v}" for k, v in settings.items() if isinstance(v, str | int | float)]
    return ", ".join(parts)
