"""Claims that the studies of many modules share."""

from collections.abc import Sequence

from intarsia.studies.cells import Measured
from intarsia.studies.tables import Spread
from intarsia.studies.verdict import Claim
from intarsia.studies.wording import several, titled


def near_joint(
    where: str, what: str, differences: Sequence[float], at_most: float, more: str = ""
) -> Claim:
    """Whether something lies at most so far below the joint network, in the mean over seeds."""
    spread = Spread.of(differences)
    holds = spread.n > 0 and round(spread.mean, 6) >= -at_most
    word = "meets" if holds else "misses"
    sd = "" if spread.n < 2 else f"sd {spread.sd:.4f}, "
    text = (
        f"{where}: {what}, {spread.mean:+.4f} from the joint network ({sd}n {spread.n}){more}, "
        f"{word} the aim of at most {at_most:g} below it."
    )
    evidence = {"difference": spread.mean, "at_most": at_most}
    return Claim(text, holds=holds, evidence=evidence, n=spread.n)


def diverged_banks(cells: Sequence[Measured]) -> dict[str, str]:
    """The banks that lost modules in training, with how many."""
    failed = {}
    for cell in cells:
        if "diverged" not in cell.result:
            continue
        own = cell.settings
        parts = [titled(own["data"]), own["model"], own["way"], own.get("arm"), own.get("pruning")]
        name = ", ".join([*filter(None, parts), f"seed {own['seed']}"])
        failed[name] = f"where {several(len(cell.result['diverged']), 'module')} diverged"
    return failed
