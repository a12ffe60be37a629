"""Make data/emr_fusion_bench.json: what fusion_bench's EMR gives for a few small changes.

The file of fusion_bench that has it imports all of fusion_bench, which takes too long for a test:
`python tests/composition/operators/logits/emr_reference.py` writes the result down.
"""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

PATH = Path(__file__).parents[1] / "data" / "emr_fusion_bench.json"
SHAPES = {"weight": (3, 4), "bias": (5,), "gain": (1,)}


def states(count: int = 3) -> list[dict[str, torch.Tensor]]:
    """Changes in whole eighths, which JSON and float32 hold exactly, some of them 0."""
    draw = torch.Generator().manual_seed(0)
    return [
        {n: torch.randint(-16, 17, s, generator=draw) / 8 for n, s in SHAPES.items()}
        for _ in range(count)
    ]


def reference() -> dict[str, Any]:
    from fusion_bench.method.emr_merging.utils import emr_merge

    given = states()
    unified, masks, scales = emr_merge(given)
    return {
        "library": f"fusion_bench {version('fusion-bench')}",
        "changes": [{name: t.tolist() for name, t in state.items()} for state in given],
        "unified": {name: t.tolist() for name, t in unified.items()},
        "masks": {name: [mask.tolist() for mask in own] for name, own in masks.items()},
        "scales": scales.tolist(),
    }


if __name__ == "__main__":
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(json.dumps(reference(), indent=1) + "\n")
