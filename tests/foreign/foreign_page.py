"""Write docs/guide/foreign.md from what the suite finds.

python tests/foreign/foreign_page.py
"""

import re
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from foreign_suite import COLUMNS, all_cells

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "foreign.md"
HEAD = """\
# Networks of your own, tried out

What holds for [a network of your own](models.md#a-network-of-your-own) follows from what its
layers do. Weights are trained, pruned and added one by one, whatever the network is. What moves,
owns or arranges **units** needs the [wiring](models.md#wiring): alignment, territories, inlays and
compaction. Where it cannot be read off the network, they say so by name and with the reason, and
everything else goes on without.

This table is made by the test suite, `tests/foreign/`: two modules of each network are trained and
tried. **yes** means that the result was compared with numbers made by hand; *no* means that it was
refused, with the reason below. There is no third kind.

| column | what is compared |
|---|---|
| trains | the engine's modules answer like those of a plain loop over samples |
| prunes | half of all matrices and kernels are exact zeros; normalisations stay whole |
| sums | `compose(bank, "sum")` has the parts' tensors added by hand, and answers accordingly |
| aligns | units change places and the answers stay, to 1e-5; so they do when `align` moves them |
| lies inlaid | `compose(bank, "inlay")` answers with the sum of the parts' logits |
| compacts | units that no weight reads any more are left out, and the answers stay |
| exports | `export_program` answers like the composition, for another number of rows |
| file | a file read again gives the same bits, and refuses a network that computes another thing |

"""
REMEDY = """
## What to do

- *cannot read the axes of ...*: give the network a [`wiring`](models.md#wiring) if its units can be
  told apart. It is tried out numerically before it is used.
- *inlay cannot join ...*: join by `logits`, which gives the same sum from networks that stay apart.
- *cannot have another width*: the network keeps a number of its units; what does not change sizes
  goes on as before.
"""


def page(cells: Mapping[str, Mapping[str, str]]) -> str:
    """The page's text."""
    lines = [f"| network | {' | '.join(COLUMNS)} |", f"|---{'|---' * len(COLUMNS)}|"]
    for name, row in cells.items():
        answers = ["yes" if row[column] == "yes" else "*no*" for column in COLUMNS]
        lines.append(f"| {name} | {' | '.join(answers)} |")
    reasons = ["\n## Reasons", ""]
    for name, row in cells.items():
        by_reason: dict[str, list[str]] = {}
        for column, answer in row.items():
            if answer != "yes":
                by_reason.setdefault(reason(answer), []).append(column)
        summary = "; ".join(
            f"{'all' if len(columns) == len(COLUMNS) else ', '.join(columns)}: {why}"
            for why, columns in by_reason.items()
        )
        if summary:
            reasons.append(f"- **{name}**: {summary}")
    return "\n".join([HEAD.rstrip("\n"), "", *lines, *reasons]) + "\n" + REMEDY


def reason(message: str) -> str:
    """A refusal without the remedy and without what names the operator, which the column does."""
    message = re.sub(
        r"^\w+ (moves units|works on units) and needs the network's wiring: ", "", message
    )
    return message.split(";")[0].split(": join them by")[0].replace("|", "\\|")


def main() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)  # tiny networks: more would only wait for one another
        PAGE.write_text(page(all_cells()))
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
