"""Identity: which settings tell one cell or bank from another."""

from collections.abc import Mapping
from typing import Any

from intarsia.files import plain


def identity(settings: Mapping[str, Any], neutral: Mapping[str, Any]) -> dict[str, Any]:
    """All settings but those at their neutral value.

    A setting that came later is listed in `neutral` with the value at which it changes nothing, so
    that what was made before keeps its digest. Defaults play no part: a changed one shows.
    """
    values, empty = plain(settings, "settings"), plain(neutral, "neutral")
    return {k: v for k, v in values.items() if k not in empty or v != empty[k]}
