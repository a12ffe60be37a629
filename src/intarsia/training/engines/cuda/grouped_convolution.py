"""Triton kernels for K convolutions side by side in bf16, with their gradients.

Pictures lie channels last, so a pixel holds the channels of all modules, and those of one are a
short piece of it. A program takes one module and a tile: of pixels, or of positions, which are
places (sample, column) in all rows, and then goes through the rows one after another, where what it
reads next lies a constant further on. Products are made in bf16 and added up in float32. Every sum
is cut at places that depend on the shapes alone and is added in order, so a module comes out with
the same bits every time, and in any bank.
"""
# ruff: noqa: E741, N803, N806 (compile-time constants are capitals)
# mypy: disallow-untyped-defs=False

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

SMALLEST, LARGEST = 8, 128  # channels of a module for which these kernels are; others go to cuDNN
BY_CUDNN = (32, 64)  # channels, as many out as in, whose 3 x 3 of stride 1 cuDNN does faster (H200)
BY_ROWS = 64  # channels up to which a kernel of 3 x 3 goes through the rows
CHUNK = 64  # channels that are multiplied at a time
SPLITS = 256  # parts of a gradient of weights, at most
ADDED = (32, 128)  # parts that are added at a time, and weights of a program that does so
PROGRAMS, STRIP = 2048, 8  # where fewer programs would not fill a GPU: rows of a strip, at least


class Blocks(NamedTuple):
    """How a kernel is launched: size of a tile, warps, stages of its pipeline."""

    tile: int
    warps: int
    stages: int


# By the larger number of channels, rounded up to a power of 2. Compiled for sm_90 none of them
# spills registers; fewer than 4 warps use the older matrix instructions, which need no waiting.
READ_BY_ROWS = {16: Blocks(64, 2, 3), 32: Blocks(64, 4, 2), 64: Blocks(64, 4, 1)}
READ_BY_TAPS = {
    16: Blocks(64, 4, 3),
    32: Blocks(64, 4, 3),
    64: Blocks(64, 4, 3),
    128: Blocks(128, 8, 3),
}
WEIGHTS = {16: Blocks(64, 4, 2), 32: Blocks(64, 8, 2), 64: Blocks(64, 8, 2), 128: Blocks(64, 8, 3)}
TILES = {16: 2, 32: 2, 64: 8, 128: 8}  # that one part of a gradient of weights sums up
ROWS_APART, TAPS_APART = 64, 128  # channels from which these of a kernel have their own programs


def fits(channels: int, outputs: int, side: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether the kernels take a module's convolution of so many channels."""
    small, large = min(channels, outputs), max(channels, outputs)
    if (side, stride) == ((3, 3), (1, 1)) and small == large and large in BY_CUDNN:
        return False
    return (
        small >= SMALLEST
        and large <= LARGEST
        and side in ((1, 1), (3, 3))
        and stride in ((1, 1), (2, 2))
    )


def convolve(
    x: Tensor, weight: Tensor, stride: int, padding: int, dtype: torch.dtype = torch.bfloat16
) -> Tensor:
    """K convolutions of x (N, K * C, H, W) by weights (K, O, C, side, side), without bias.

    Both are rounded to `dtype`, as autocast would; the gradient of the weights is not.
    """
    made: Tensor = GroupedProducts.apply(x, weight, stride, padding, dtype)
    return made


class GroupedProducts(torch.autograd.Function):
    """The three products of a convolution: outputs, gradient of inputs, gradient of weights."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, stride: int, padding: int, dtype: torch.dtype
    ) -> Tensor:
        x = x.to(dtype).contiguous(memory_format=torch.channels_last)
        rounded = weight.to(dtype)
        ctx.save_for_backward(x, rounded)
        ctx.stride, ctx.padding, ctx.dtype = stride, padding, weight.dtype
        side = weight.shape[-1]
        height, width = ((n + 2 * padding - side) // stride + 1 for n in x.shape[2:])
        return _products(x, rounded, stride, padding, (height, width), back=False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad = grads[0].to(x.dtype).contiguous(memory_format=torch.channels_last)
        for_x = for_weight = None
        if ctx.needs_input_grad[0]:
            size = (x.shape[2], x.shape[3])
            for_x = _products(grad, weight, ctx.stride, ctx.padding, size, back=True)
        if ctx.needs_input_grad[1]:
            for_weight = _weight_gradient(x, grad, weight, ctx.stride, ctx.padding).to(ctx.dtype)
        return for_x, for_weight, None, None, None


def _products(
    x: Tensor, weight: Tensor, stride: int, padding: int, size: tuple[int, int], back: bool
) -> Tensor:
    """The outputs of a size, or going `back` the gradient of the inputs, from that of outputs."""
    modules, outputs, channels, side, _ = weight.shape
    samples, _, height, width = x.shape
    strides = list(weight.stride())
    if back:
        outputs, channels = channels, outputs
        strides[1], strides[2] = strides[2], strides[1]
    made = torch.empty(
        (samples, modules * outputs, *size),
        dtype=x.dtype,
        device=x.device,
        memory_format=torch.channels_last,
    )
    blocks = _block(max(channels, outputs))
    lengths = (modules * channels, modules * outputs, *strides)
    constants = {"C": channels, "O": outputs, "BO": _block(outputs), "BACK": back}
    if (side, stride, padding) == (3, 1, 1) and blocks <= BY_ROWS:
        tile, warps, stages = READ_BY_ROWS[blocks]
        tiles = triton.cdiv(samples * width, tile)
        strips = min(max(1, PROGRAMS // (tiles * modules)), triton.cdiv(height, STRIP))
        rows = triton.cdiv(height, strips)
        read_by_rows[(modules, tiles, triton.cdiv(height, rows))](
            x, weight, made, samples * width, height, width, rows, *lengths,
            **constants, BC=_block(channels), B=tile, num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return made
    tile, warps, stages = READ_BY_TAPS[blocks]
    step = stride if back else 1
    pixels = samples * triton.cdiv(size[0], step) * triton.cdiv(size[1], step)
    read_by_taps[(modules * triton.cdiv(pixels, tile), step * step)](
        x, weight, made, modules, samples, height, width, *size, *lengths, **constants,
        BC=min(CHUNK, _block(channels)), SIDE=side, STRIDE=stride, PADDING=padding, B=tile,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return made


def _weight_gradient(x: Tensor, grad: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
    modules, outputs, channels, side, _ = weight.shape
    samples, _, height, width = x.shape
    out_height, out_width = grad.shape[2:]
    size = _block(max(channels, outputs))
    tile, warps, stages = WEIGHTS[size]
    tiles = triton.cdiv(samples * out_width, tile)
    each = max(TILES[size], triton.cdiv(tiles, SPLITS))
    splits = triton.cdiv(tiles, each)
    parts = torch.empty(splits, modules, outputs, side, side, channels, device=x.device)
    high, wide = (
        1 if size >= apart else int(triton.next_power_of_2(side))
        for apart in (ROWS_APART, TAPS_APART)
    )
    groups = triton.cdiv(side, high) * triton.cdiv(side, wide)
    sum_weights[(modules, groups, splits)](
        x, grad, parts, samples * out_width, height, width, out_height, out_width, each,
        modules * channels, modules * outputs, C=channels, O=outputs, BC=_block(channels),
        BO=_block(outputs), SIDE=side, STRIDE=stride, PADDING=padding, WIDE=wide, HIGH=high, B=tile,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    total = torch.empty_like(parts[0])
    add_splits[(triton.cdiv(total.numel(), ADDED[1]),)](
        parts, total, total.numel(), splits, S=ADDED[0], B=ADDED[1], num_warps=4
    )
    return total.permute(0, 1, 4, 2, 3)


def _block(channels: int) -> int:
    """Channels of a tile: the matrix units want 16 at least."""
    return int(triton.next_power_of_2(max(16, channels)))


@triton.jit
def tap(
    w_ptr, i: tl.constexpr, j: tl.constexpr, w_output, w_input, w_row, w_column,
    C: tl.constexpr, O: tl.constexpr, BC: tl.constexpr, BO: tl.constexpr,
):  # fmt: skip
    """The weights of row i and column j of a kernel, channels x outputs."""
    c, o = tl.arange(0, BC), tl.arange(0, BO)
    ptrs = w_ptr + i * w_row + j * w_column + c[:, None] * w_input + o[None, :] * w_output
    return tl.load(ptrs, mask=(c[:, None] < C) & (o[None, :] < O), other=0.0)


@triton.jit(do_not_specialize=["positions", "height", "width", "rows"])
def read_by_rows(
    x_ptr, w_ptr, y_ptr, positions, height, width, rows,
    x_pixel, y_pixel, w_module, w_output, w_input, w_row, w_column,
    C: tl.constexpr, O: tl.constexpr, BC: tl.constexpr, BO: tl.constexpr, BACK: tl.constexpr,
    B: tl.constexpr,
):  # fmt: skip
    """y[k] = x[k] * w[k] with kernels of 3 x 3, stride and padding 1, in a strip of rows.

    A row of x counts for three rows of y and is read once for all, at three columns. BACK turns
    the kernels round: x is then the gradient at the outputs, and y that at the inputs.
    """
    k, first = tl.program_id(0), tl.program_id(2) * rows
    q = tl.program_id(1) * B + tl.arange(0, B)
    n, column = q // width, q % width
    c, o = tl.arange(0, BC), tl.arange(0, BO)
    place = n.to(tl.int64) * height * width + column
    x_ptrs = x_ptr + k * C + place[:, None] * x_pixel + c[None, :]
    y_ptrs = y_ptr + k * O + place[:, None] * y_pixel + o[None, :]
    inside = q < positions
    middle = inside[:, None] & (c[None, :] < C)
    left = (inside & (column > 0))[:, None] & (c[None, :] < C)
    right = (inside & (column + 1 < width))[:, None] & (c[None, :] < C)
    kept = inside[:, None] & (o[None, :] < O)
    w_ptr += k.to(tl.int64) * w_module
    # rows of y above, at and below that of x; BACK from the end of the kernel
    e: tl.constexpr = 2 if BACK else 0
    a: tl.constexpr = 0 if BACK else 2
    above_l = tap(w_ptr, a, e, w_output, w_input, w_row, w_column, C, O, BC, BO)
    above_m = tap(w_ptr, a, 1, w_output, w_input, w_row, w_column, C, O, BC, BO)
    above_r = tap(w_ptr, a, 2 - e, w_output, w_input, w_row, w_column, C, O, BC, BO)
    at_l = tap(w_ptr, 1, e, w_output, w_input, w_row, w_column, C, O, BC, BO)
    at_m = tap(w_ptr, 1, 1, w_output, w_input, w_row, w_column, C, O, BC, BO)
    at_r = tap(w_ptr, 1, 2 - e, w_output, w_input, w_row, w_column, C, O, BC, BO)
    below_l = tap(w_ptr, 2 - a, e, w_output, w_input, w_row, w_column, C, O, BC, BO)
    below_m = tap(w_ptr, 2 - a, 1, w_output, w_input, w_row, w_column, C, O, BC, BO)
    below_r = tap(w_ptr, 2 - a, 2 - e, w_output, w_input, w_row, w_column, C, O, BC, BO)
    last = tl.minimum(first + rows, height)
    above = tl.zeros((B, BO), dtype=tl.float32)
    at = tl.zeros((B, BO), dtype=tl.float32)
    for row in range(tl.maximum(first - 1, 0), last + 1):
        there = row < height
        ahead = row * width * x_pixel
        x_l = tl.load(x_ptrs + (ahead - x_pixel), mask=left & there, other=0.0)
        x_m = tl.load(x_ptrs + ahead, mask=middle & there, other=0.0)
        x_r = tl.load(x_ptrs + (ahead + x_pixel), mask=right & there, other=0.0)
        above = tl.dot(x_l, above_l, above)
        above = tl.dot(x_m, above_m, above)
        above = tl.dot(x_r, above_r, above)
        at = tl.dot(x_l, at_l, at)
        at = tl.dot(x_m, at_m, at)
        at = tl.dot(x_r, at_r, at)
        below = tl.dot(x_l, below_l)
        below = tl.dot(x_m, below_m, below)
        below = tl.dot(x_r, below_r, below)
        done = above.to(y_ptr.dtype.element_ty)
        tl.store(y_ptrs + (row - 1) * width * y_pixel, done, mask=kept & (row > first))
        above = at
        at = below


@triton.jit(do_not_specialize=["modules", "samples", "height", "width", "out_height", "out_width"])
def read_by_taps(
    x_ptr, w_ptr, y_ptr, modules, samples, height, width, out_height, out_width,
    x_pixel, y_pixel, w_module, w_output, w_input, w_row, w_column,
    SIDE: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr,
    C: tl.constexpr, O: tl.constexpr, BC: tl.constexpr, BO: tl.constexpr, BACK: tl.constexpr,
    B: tl.constexpr,
):  # fmt: skip
    """As `read_by_rows` for any kernel, stride and padding, and a tile of pixels.

    Every tap reads what it needs. Going BACK, pixels whose rows and columns leave the same rest
    when divided by the stride meet the same taps, and have programs of their own.
    """
    k = tl.program_id(0) % modules
    STEP: tl.constexpr = STRIDE if BACK else 1
    rest_i, rest_j = tl.program_id(1) // STEP, tl.program_id(1) % STEP
    rows = (out_height - rest_i + STEP - 1) // STEP
    columns = (out_width - rest_j + STEP - 1) // STEP
    q = tl.program_id(0) // modules * B + tl.arange(0, B)
    inside = q < samples * rows * columns
    columns = tl.maximum(columns, 1)
    row, n = q // columns, q // tl.maximum(rows * columns, 1)
    row, column = row - n * rows, q % columns
    first_i, first_j = (rest_i + PADDING) % STEP, (rest_j + PADDING) % STEP
    taps_i = (SIDE - first_i + STEP - 1) // STEP
    taps_j = (SIDE - first_j + STEP - 1) // STEP
    c, o = tl.arange(0, BC), tl.arange(0, BO)
    if BACK:
        from_row = row + (rest_i + PADDING) // STEP
        from_column = column + (rest_j + PADDING) // STEP
    else:
        from_row, from_column = row * STRIDE - PADDING, column * STRIDE - PADDING
    x_ptrs = x_ptr + k * C + (n.to(tl.int64) * height * width * x_pixel)[:, None] + c[None, :]
    w_ptr += k.to(tl.int64) * w_module
    w_ptrs = w_ptr + c[:, None] * w_input + o[None, :] * w_output
    total = tl.zeros((B, BO), dtype=tl.float32)
    CHUNKS: tl.constexpr = (C + BC - 1) // BC
    for t in range(taps_i * taps_j * CHUNKS):
        i, j, chunk = t // CHUNKS // taps_j, t // CHUNKS % taps_j, t % CHUNKS * BC
        if BACK:
            at_row, at_column = from_row - i, from_column - j
        else:
            at_row, at_column = from_row + i, from_column + j
        read = inside & (at_row >= 0) & (at_row < height)
        read &= (at_column >= 0) & (at_column < width)
        some = c + chunk < C
        x = tl.load(
            x_ptrs + ((at_row * width + at_column) * x_pixel + chunk)[:, None],
            mask=read[:, None] & some[None, :], other=0.0,
        )  # fmt: skip
        across = (first_i + STEP * i) * w_row + (first_j + STEP * j) * w_column
        w = tl.load(
            w_ptrs + (across + chunk * w_input),
            mask=some[:, None] & (o[None, :] < O), other=0.0,
        )  # fmt: skip
        total = tl.dot(x, w, total)
    place = (n.to(tl.int64) * out_height + row * STEP + rest_i) * out_width
    y_ptrs = y_ptr + k * O + (place + column * STEP + rest_j)[:, None] * y_pixel + o[None, :]
    kept = inside[:, None] & (o[None, :] < O)
    tl.store(y_ptrs, total.to(y_ptr.dtype.element_ty), mask=kept)


@triton.jit(do_not_specialize=["positions", "height", "width", "out_height", "out_width", "tiles"])
def sum_weights(
    x_ptr, d_ptr, part_ptr, positions, height, width, out_height, out_width, tiles,
    x_pixel, d_pixel,
    C: tl.constexpr, O: tl.constexpr, BC: tl.constexpr, BO: tl.constexpr,
    SIDE: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr,
    WIDE: tl.constexpr, HIGH: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """part[s, k] = the gradient of w[k] from `tiles` tiles of positions.

    Several taps as one product: WIDE columns of a kernel beside each other in x, and HIGH rows in
    d, the gradient at the outputs, since x at one row meets a row of d for each row of a kernel.
    Both are all that there are, or 1: then each has a program of its own.
    """
    k, piece = tl.program_id(0), tl.program_id(2)
    a, b = tl.arange(0, WIDE * BC), tl.arange(0, HIGH * BO)
    ACROSS: tl.constexpr = (SIDE + WIDE - 1) // WIDE
    j, c = tl.program_id(1) % ACROSS + a // BC, a % BC
    i, o = tl.program_id(1) // ACROSS + b // BO, b % BO
    x_ptr += k * C
    d_ptr += k * O
    total = tl.zeros((WIDE * BC, HIGH * BO), dtype=tl.float32)
    for tile in range(piece * tiles, piece * tiles + tiles):
        q = tile * B + tl.arange(0, B)
        n, column = q // out_width, q % out_width
        inside = (q < positions)[:, None]
        across = column[:, None] * STRIDE + j[None, :] - PADDING
        read_x = inside & ((j < SIDE) & (c < C))[None, :] & (across >= 0) & (across < width)
        read_d = inside & ((i < SIDE) & (o < O))[None, :]
        place = n.to(tl.int64) * height * width + column * STRIDE - PADDING
        x_ptrs = x_ptr + place[:, None] * x_pixel + (j * x_pixel + c)[None, :]
        place = n.to(tl.int64) * out_height * out_width + column
        d_ptrs = d_ptr + place[:, None] * d_pixel + o[None, :]
        for row in range(height):
            up = row + PADDING - i
            from_row = up // STRIDE
            there = (up >= 0) & (up % STRIDE == 0) & (from_row < out_height)
            x = tl.load(x_ptrs + row * width * x_pixel, mask=read_x, other=0.0)
            d = tl.load(
                d_ptrs + (from_row * out_width * d_pixel)[None, :],
                mask=read_d & there[None, :], other=0.0,
            )  # fmt: skip
            total = tl.dot(tl.trans(x), d, total)
    start = (piece.to(tl.int64) * tl.num_programs(0) + k) * O * SIDE * SIDE * C
    spot = (o * SIDE + i)[None, :] * SIDE * C + (j * C + c)[:, None]
    kept = ((j < SIDE) & (c < C))[:, None] & ((i < SIDE) & (o < O))[None, :]
    tl.store(part_ptr + start + spot, total, mask=kept)


@triton.jit(do_not_specialize=["splits"])
def add_splits(part_ptr, sum_ptr, size, splits, S: tl.constexpr, B: tl.constexpr):
    """sum = the parts of all splits, each of `size` numbers."""
    n = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros((S, B), dtype=tl.float32)
    for first in range(0, splits, S):
        s = first + tl.arange(0, S)
        place = s.to(tl.int64)[:, None] * size + n[None, :]
        total += tl.load(
            part_ptr + place, mask=(s < splits)[:, None] & (n < size)[None, :], other=0.0
        )
    tl.store(sum_ptr + n, tl.sum(total, 0), mask=n < size)
