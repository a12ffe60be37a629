"""What holds for networks as people have them: two modules of each are trained and tried.

python benchmarks/experiments/networks.py

writes docs/results/networks.json. The networks and the checks are those of tests/foreign, where a
test holds the file to what is found today. A cell says yes, or why it was refused; a wrong number
stops the script.
"""

import argparse
import sys
import warnings
from pathlib import Path

import torch

from benchmarks.record import RESULTS, ROOT, made_by, save


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=RESULTS)
    output = parser.parse_args().output
    sys.path.insert(0, str(ROOT / "tests" / "foreign"))
    from foreign_suite import SEEN, SETTINGS, all_cells, tried

    torch.set_num_threads(1)  # tiny networks: more would only wait for one another
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hardly trained, and buffers that differ
        cells = all_cells()
    settings = {key: SETTINGS[key] for key in ("epochs", "batch", "learning_rate", "rounds")}
    result = {"settings": settings, "checks": SEEN, "networks": tried(cells)}
    save(output, "networks", made_by(__file__) | result)


if __name__ == "__main__":
    main()
