"""How white does the first layer of `fastnet` make the patches of a data set's pictures?

    python benchmarks/experiments/patches.py --data cifar100

For patches of 2 x 2 pixels of the training pictures, scaled to 0 to 1: the standard deviations
along their own principal axes, those along the cosine basis, which needs no data, what `fastnet`
divides them by, and what is left; then the largest correlation between two pixels, and between two
coefficients of the basis. They are printed; the constants in src/intarsia/models/fastnet.py are
rounded from those of CIFAR-100.
"""

import argparse

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

import intarsia as ia
from intarsia.data import subsample
from intarsia.models.fastnet import SIDE, spread, whitening_filters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="cifar100")
    parser.add_argument("--rows", type=int, default=10_000)
    options = parser.parse_args()
    data = ia.load_data(options.data, scale="unit")
    x = data.scaling(subsample(data.train, options.rows).x).double()
    channels = x.shape[1]
    print(f"{options.data}: mean {float(x.mean()):.3f}, deviation {float(x.std()):.3f}")
    pixels = F.unfold(x, SIDE).movedim(1, 0).flatten(1)  # C * 4, everything else
    own = torch.linalg.eigvalsh(torch.cov(pixels)).clamp_min(0).sqrt().flip(0)
    expected = [
        spread(c, i, j, channels) for c in range(channels) for i in range(SIDE) for j in range(SIDE)
    ]
    divided = whitening_filters(channels).flatten(1) @ pixels
    basis = divided * torch.tensor(expected, dtype=torch.float64)[:, None]
    order = basis.std(1).argsort(descending=True)
    print("principal axes, cosine basis, divided by, left:")
    for place, k in enumerate(order.tolist()):
        print(
            f"  {own[place]:.4f}  {basis[k].std():.4f}  {expected[k]:.4f}  {divided[k].std():.2f}"
        )
    print(f"largest correlation: pixels {largest(pixels):.2f}, cosine basis {largest(basis):.2f}")


def largest(rows: Tensor) -> float:
    """The largest correlation between two of the rows."""
    return float((torch.corrcoef(rows) - torch.eye(len(rows), dtype=rows.dtype)).abs().max())


if __name__ == "__main__":
    main()
