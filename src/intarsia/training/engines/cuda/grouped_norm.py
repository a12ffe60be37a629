"""Triton kernels for batch normalisation of pictures that lie channels last, as it trains.

What follows a normalisation in most networks goes with it: a residual that is added, and ReLU. The
outputs are read and written once, and going back once more for the two sums that all of a
channel's gradients need. Arithmetic is in float32. A sum over pixels is cut into spans that depend
on their number alone, and parts are added in order: the same bits every time.
"""
# ruff: noqa: N803 (compile-time constants are capitals)
# mypy: disallow-untyped-defs=False

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

PARTS = 256  # of a sum over pixels, at most
SPAN = 128  # pixels of a part, at least
PIXELS, CHANNELS, WARPS = 128, 32, 4  # of a tile
FINISHED = 64  # parts that are added at a time


def normalise(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running: tuple[Tensor, Tensor] | None,
    momentum: float,
    epsilon: float,
    relu: bool = False,
    residual: Tensor | None = None,
) -> Tensor:
    """x (N, C, H, W) normalised by its own statistics, which `running` ones follow in place.

    With `residual` that is added, with `relu` negative outputs become 0.
    """
    made: Tensor = Normalisation.apply(
        x, weight, bias, residual, *(running or (None, None)), momentum, epsilon, relu
    )
    return made


class Normalisation(torch.autograd.Function):
    """Outputs by two passes over x, gradients by two more; ReLU's is found again from x."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        residual: Tensor | None,
        running_mean: Tensor | None,
        running_variance: Tensor | None,
        momentum: float,
        epsilon: float,
        relu: bool,
    ) -> Tensor:
        x = _last(x)
        residual = None if residual is None else _last(residual.to(x.dtype))
        pixels, channels = x.numel() // x.shape[1], x.shape[1]
        span, parts = _spans(pixels)
        blocks = triton.cdiv(channels, CHANNELS)
        sums = torch.empty(parts, 2, channels, device=x.device)
        moments[(blocks, parts)](
            x, sums, pixels, span, channels, B=PIXELS, BC=CHANNELS, num_warps=WARPS
        )
        table = torch.empty(4, channels, device=x.device)  # mean, 1 / deviation, scale, shift
        tracked = running_mean is not None
        finish_moments[(blocks,)](
            x, sums, table, weight, bias, running_mean if tracked else table,
            running_variance if tracked else table, pixels, parts, channels, momentum, epsilon,
            TRACKED=tracked, B=FINISHED, BC=CHANNELS, num_warps=WARPS,
        )  # fmt: skip
        made = torch.empty_like(x)
        added = residual is not None
        scale_and_shift[(blocks * triton.cdiv(pixels, PIXELS),)](
            x, table, residual if added else x, made, pixels, blocks, channels,
            RELU=relu, ADDED=added, B=PIXELS, BC=CHANNELS, num_warps=WARPS,
        )  # fmt: skip
        ctx.save_for_backward(x, table, *([made] if added and relu else []))
        ctx.relu, ctx.added = relu, added
        return made

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, table, *outputs = ctx.saved_tensors
        grad = _last(grads[0].to(x.dtype))
        pixels, channels = x.numel() // x.shape[1], x.shape[1]
        span, parts = _spans(pixels)
        blocks = triton.cdiv(channels, CHANNELS)
        sums = torch.empty(parts, 2, channels, device=x.device)
        kept = torch.empty_like(x) if outputs else grad  # what ReLU lets through, for the residual
        # 1 for a ReLU that x tells of, 2 for one that only the outputs tell of
        cut = 0 if not ctx.relu else 2 if outputs else 1
        sum_gradients[(blocks, parts)](
            x, table, grad, outputs[0] if outputs else x, kept, sums, pixels, span, channels,
            CUT=cut, B=PIXELS, BC=CHANNELS, num_warps=WARPS,
        )  # fmt: skip
        means = torch.empty(2, channels, device=x.device)
        finished = torch.empty(2, channels, device=x.device)
        finish_gradients[(blocks,)](
            sums, table, finished, means, pixels, parts, channels,
            B=FINISHED, BC=CHANNELS, num_warps=WARPS,
        )  # fmt: skip
        for_x = torch.empty_like(x)
        pass_gradients[(blocks * triton.cdiv(pixels, PIXELS),)](
            x, table, kept, means, for_x, pixels, blocks, channels,
            CUT=cut == 1, B=PIXELS, BC=CHANNELS, num_warps=WARPS,
        )  # fmt: skip
        residual = kept if ctx.added else None
        return for_x, finished[1], finished[0], residual, None, None, None, None, None


def _last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _spans(pixels: int) -> tuple[int, int]:
    """Pixels of a part, and how many parts there are."""
    span = max(SPAN, triton.cdiv(triton.cdiv(pixels, PARTS), PIXELS) * PIXELS)
    return span, triton.cdiv(pixels, span)


@triton.jit
def tile_of(first, end, c, channels, B: tl.constexpr):
    """Where B pixels from the first on have channels c, and which of them are before the end."""
    m = first + tl.arange(0, B)
    place = m.to(tl.int64)[:, None] * channels + c[None, :]
    return place, (m < end)[:, None] & (c < channels)[None, :]


@triton.jit
def read(ptr, place, inside):
    """What lies there as float32, 0 outside."""
    return tl.load(ptr + place, mask=inside, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=["pixels", "span"])
def moments(x_ptr, part_ptr, pixels, span, channels, B: tl.constexpr, BC: tl.constexpr):
    """part[s] = sums of x - x[0] and of its square: near the mean, so that little cancels."""
    c, piece = tl.program_id(0) * BC + tl.arange(0, BC), tl.program_id(1)
    here = c < channels
    middle = tl.load(x_ptr + c, mask=here, other=0.0).to(tl.float32)[None, :]
    total = tl.zeros((B, BC), dtype=tl.float32)
    squares = tl.zeros((B, BC), dtype=tl.float32)
    last = tl.minimum(piece * span + span, pixels)
    for first in range(piece * span, last, B):
        place, inside = tile_of(first, last, c, channels, B)
        x = tl.where(inside, read(x_ptr, place, inside) - middle, 0.0)
        total += x
        squares += x * x
    spot = piece * 2 * channels + c
    tl.store(part_ptr + spot, tl.sum(total, 0), mask=here)
    tl.store(part_ptr + spot + channels, tl.sum(squares, 0), mask=here)


@triton.jit
def add_parts(part_ptr, c, channels, parts, B: tl.constexpr, BC: tl.constexpr):
    """Both sums of channels c over all parts."""
    one = tl.zeros((B, BC), dtype=tl.float32)
    two = tl.zeros((B, BC), dtype=tl.float32)
    for first in range(0, parts, B):
        s = first + tl.arange(0, B)
        inside = (s < parts)[:, None] & (c < channels)[None, :]
        spot = part_ptr + s[:, None] * 2 * channels + c[None, :]
        one += tl.load(spot, mask=inside, other=0.0)
        two += tl.load(spot + channels, mask=inside, other=0.0)
    return tl.sum(one, 0), tl.sum(two, 0)


@triton.jit(do_not_specialize=["pixels", "parts", "momentum", "epsilon"])
def finish_moments(
    x_ptr, part_ptr, table_ptr, weight_ptr, bias_ptr, mean_ptr, variance_ptr,
    pixels, parts, channels, momentum, epsilon,
    TRACKED: tl.constexpr, B: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The table of mean, 1 / deviation, scale and shift; running statistics follow."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    here = c < channels
    total, squares = add_parts(part_ptr, c, channels, parts, B, BC)
    off = total / pixels
    variance = tl.maximum(squares / pixels - off * off, 0.0)
    mean = tl.load(x_ptr + c, mask=here, other=0.0).to(tl.float32) + off
    inverse = 1.0 / tl.sqrt(variance + epsilon)
    scale = tl.load(weight_ptr + c, mask=here, other=0.0) * inverse
    shift = tl.load(bias_ptr + c, mask=here, other=0.0) - mean * scale
    tl.store(table_ptr + c, mean, mask=here)
    tl.store(table_ptr + channels + c, inverse, mask=here)
    tl.store(table_ptr + 2 * channels + c, scale, mask=here)
    tl.store(table_ptr + 3 * channels + c, shift, mask=here)
    if TRACKED:
        unbiased = variance * (pixels / (pixels - 1.0))
        before = tl.load(mean_ptr + c, mask=here, other=0.0)
        tl.store(mean_ptr + c, before + momentum * (mean - before), mask=here)
        before = tl.load(variance_ptr + c, mask=here, other=0.0)
        tl.store(variance_ptr + c, before + momentum * (unbiased - before), mask=here)


@triton.jit(do_not_specialize=["pixels", "blocks"])
def scale_and_shift(
    x_ptr, table_ptr, residual_ptr, y_ptr, pixels, blocks, channels,
    RELU: tl.constexpr, ADDED: tl.constexpr, B: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """y = relu(scale * x + shift + residual), whatever of it is asked for."""
    c = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    here = c < channels
    place, inside = tile_of(tl.program_id(0) // blocks * B, pixels, c, channels, B)
    scale = tl.load(table_ptr + 2 * channels + c, mask=here, other=0.0)[None, :]
    shift = tl.load(table_ptr + 3 * channels + c, mask=here, other=0.0)[None, :]
    y = read(x_ptr, place, inside) * scale + shift
    if ADDED:
        y += read(residual_ptr, place, inside)
    if RELU:
        y = tl.where(y < 0, 0.0, y)  # and what is not a number stays so
    tl.store(y_ptr + place, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["pixels", "span"])
def sum_gradients(
    x_ptr, table_ptr, d_ptr, y_ptr, kept_ptr, part_ptr, pixels, span, channels,
    CUT: tl.constexpr, B: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """part[s] = sums of the gradient d and of d times x normalised; CUT says what ReLU let by.

    With CUT 1 that follows from x; with 2 from the outputs y, and what is left of d is kept.
    """
    c, piece = tl.program_id(0) * BC + tl.arange(0, BC), tl.program_id(1)
    here = c < channels
    mean = tl.load(table_ptr + c, mask=here, other=0.0)[None, :]
    inverse = tl.load(table_ptr + channels + c, mask=here, other=0.0)
    scale = tl.load(table_ptr + 2 * channels + c, mask=here, other=0.0)[None, :]
    shift = tl.load(table_ptr + 3 * channels + c, mask=here, other=0.0)[None, :]
    total = tl.zeros((B, BC), dtype=tl.float32)
    along = tl.zeros((B, BC), dtype=tl.float32)
    last = tl.minimum(piece * span + span, pixels)
    for first in range(piece * span, last, B):
        place, inside = tile_of(first, last, c, channels, B)
        x, d = read(x_ptr, place, inside), read(d_ptr, place, inside)
        if CUT == 1:
            d = tl.where(x * scale + shift > 0, d, 0.0)
        if CUT == 2:
            y = read(y_ptr, place, inside)
            d = tl.where(y > 0, d, 0.0)
            tl.store(kept_ptr + place, d.to(kept_ptr.dtype.element_ty), mask=inside)
        total += d
        along += d * (x - mean)
    spot = piece * 2 * channels + c
    tl.store(part_ptr + spot, tl.sum(total, 0), mask=here)
    tl.store(part_ptr + spot + channels, tl.sum(along, 0) * inverse, mask=here)


@triton.jit(do_not_specialize=["pixels", "parts"])
def finish_gradients(
    part_ptr, table_ptr, sum_ptr, mean_ptr, pixels, parts, channels,
    B: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The gradients of bias and weight; and what each pixel's gradient loses, per unit of x."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    here = c < channels
    total, along = add_parts(part_ptr, c, channels, parts, B, BC)
    inverse = tl.load(table_ptr + channels + c, mask=here, other=0.0)
    tl.store(sum_ptr + c, total, mask=here)
    tl.store(sum_ptr + channels + c, along, mask=here)
    tl.store(mean_ptr + c, total / pixels, mask=here)
    tl.store(mean_ptr + channels + c, along * inverse / pixels, mask=here)


@triton.jit(do_not_specialize=["pixels", "blocks"])
def pass_gradients(
    x_ptr, table_ptr, d_ptr, mean_ptr, for_x_ptr, pixels, blocks, channels,
    CUT: tl.constexpr, B: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The gradient of x: scale * (d - its mean - what x explains of it)."""
    c = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    here = c < channels
    place, inside = tile_of(tl.program_id(0) // blocks * B, pixels, c, channels, B)
    mean = tl.load(table_ptr + c, mask=here, other=0.0)[None, :]
    scale = tl.load(table_ptr + 2 * channels + c, mask=here, other=0.0)[None, :]
    shift = tl.load(table_ptr + 3 * channels + c, mask=here, other=0.0)[None, :]
    lost = tl.load(mean_ptr + c, mask=here, other=0.0)[None, :]
    slope = tl.load(mean_ptr + channels + c, mask=here, other=0.0)[None, :]
    x, d = read(x_ptr, place, inside), read(d_ptr, place, inside)
    if CUT:
        d = tl.where(x * scale + shift > 0, d, 0.0)
    d = scale * (d - lost - (x - mean) * slope)
    tl.store(for_x_ptr + place, d.to(for_x_ptr.dtype.element_ty), mask=inside)
