"""Augmentations: pictures moved, mirrored or covered a little, anew in every epoch.

An augmentation is a function of pictures N x C x H x W, scaled as the network reads them, and of
random numbers N x `numbers` between 0 and 1 that are drawn for it:

    @AUGMENTATIONS.register("dim", numbers=1)
    def dim(pictures, random, most=0.5):
        return pictures * (1 - most * random[:, :1, None, None])

It must not look at values to decide what to run, nor draw anything itself, so that a step can be
recorded once and replayed.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from intarsia.errors import RecipeError
from intarsia.files import stream
from intarsia.specs import Registry, Spec

AUGMENTATIONS = Registry("augmentation", given=("pictures", "random"), numbers=0)
"""Augmentations by name; the trait `numbers` says how many random numbers a picture needs."""


def read_augmentations(given: Any) -> list[Spec]:
    """Augmentations as people write them: "crop(4) + flip", a mapping, or a list; none for None."""
    return AUGMENTATIONS.specs(given, "augment", "crop(4) + flip")


def check_augmentations(steps: Sequence[Spec], shape: tuple[int, ...]) -> None:
    """Our error where inputs of this shape are no pictures, or a setting does not fit them."""
    if not steps:
        return
    if len(shape) != 3:
        raise RecipeError(
            f"augment is {' + '.join(map(str, steps))}: it changes pictures, channels x height x "
            f"width, and these inputs have shape {shape}: leave it out"
        )
    pictures = torch.zeros(2, *shape)
    changed = augmented(pictures, steps, torch.full((2, numbers_of(steps)), 0.5))
    if changed.shape != pictures.shape:
        raise RecipeError(
            f"augment: {' + '.join(map(str, steps))} makes {tuple(changed.shape[1:])} of pictures "
            f"{shape}: expected the same shape"
        )


def numbers_of(steps: Sequence[Spec]) -> int:
    """How many random numbers a picture needs for all of them."""
    return sum(AUGMENTATIONS[step.name].numbers for step in steps)


def draw_numbers(steps: Sequence[Spec], rows: int, *key: Any) -> Tensor:
    """Numbers between 0 and 1 for every row of an epoch, from a stream that `key` names."""
    generator = torch.Generator().manual_seed(stream("augment", *key))
    return torch.rand(rows, numbers_of(steps), generator=generator)


def augmented(pictures: Tensor, steps: Sequence[Spec], random: Tensor) -> Tensor:
    """The pictures after all steps, each with its own columns of the random numbers."""
    first = 0
    for step in steps:
        last = first + AUGMENTATIONS[step.name].numbers
        pictures = AUGMENTATIONS.call(step, pictures=pictures, random=random[:, first:last])
        first = last
    return pictures


@AUGMENTATIONS.register("crop", numbers=2)
def crop(pictures: Tensor, random: Tensor, pixels: int = 4) -> Tensor:
    """Moved by up to so many pixels up, down, left and right; what comes in from outside is 0."""
    height, width = pictures.shape[2:]
    if type(pixels) is not int or not 1 <= pixels < min(height, width):
        raise RecipeError(
            f"augment: crop has pixels {pixels!r}: expected a whole number from 1 to "
            f"{min(height, width) - 1}"
        )
    down, right = _whole(random, 2 * pixels + 1).unbind(1)
    padded = torch.nn.functional.pad(pictures, (pixels, pixels, pixels, pixels))
    rows = down[:, None] + torch.arange(height, device=pictures.device)  # N, H
    columns = right[:, None] + torch.arange(width, device=pictures.device)  # N, W
    each = torch.arange(len(pictures), device=pictures.device)[:, None, None]
    # Channels last for the moment: one gather takes whole pixels.
    moved = padded.permute(0, 2, 3, 1)[each, rows[:, :, None], columns[:, None, :]]
    return moved.permute(0, 3, 1, 2)


@AUGMENTATIONS.register("flip", numbers=1)
def flip(pictures: Tensor, random: Tensor) -> Tensor:
    """Every second picture mirrored, left for right, by chance."""
    return torch.where(random[:, :, None, None] < 0.5, pictures.flip(3), pictures)


@AUGMENTATIONS.register("cutout", numbers=2)
def cutout(pictures: Tensor, random: Tensor, pixels: int = 8) -> Tensor:
    """A square of so many pixels at 0, wherever its middle falls."""
    height, width = pictures.shape[2:]
    if type(pixels) is not int or not 1 <= pixels <= max(height, width):
        raise RecipeError(
            f"augment: cutout has pixels {pixels!r}: expected a whole number from 1 to "
            f"{max(height, width)}"
        )
    top = _whole(random[:, :1], height) - pixels // 2
    left = _whole(random[:, 1:], width) - pixels // 2
    rows = torch.arange(height, device=pictures.device)
    columns = torch.arange(width, device=pictures.device)
    inside = ((rows >= top) & (rows < top + pixels))[:, None, :, None] & (
        (columns >= left) & (columns < left + pixels)
    )[:, None, None, :]
    return pictures.masked_fill(inside, 0)


def _whole(random: Tensor, count: int) -> Tensor:
    """Whole numbers from 0 to count - 1, from numbers between 0 and 1."""
    return (random * count).long().clamp_max(count - 1)
