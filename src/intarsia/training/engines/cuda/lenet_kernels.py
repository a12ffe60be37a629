"""Triton kernels for the convolution of a stack of Lenets, and for the wide layer above it.

Pooled outputs are numbered by position first, then channel: the I = P * C inputs of the layer
above. A patch is read from the picture where it is needed, 4 to a pooled position, one for each q
of its 2 x 2 window; along the taps it lies contiguous going forward, along the batch going back.
Sums over positions are cut at the same places for every bank and added in order. `linear_kernels`
says what is UNEVEN and who is active.
"""
# ruff: noqa: N803, SIM102 (a constant and a value do not go into one condition)
# mypy: disallow-untyped-defs=False

import triton
import triton.language as tl

from intarsia.training.engines.cuda.linear_kernels import adam, load_tile, products


@triton.jit
def pixels_of(p, q, t, height, width, pooled_width, TAPS: tl.constexpr):
    """Which pixel tap t of patch q at position p reads, and whether it is in the picture."""
    tap = t % 25
    row = 2 * (p // pooled_width) + q // 2 + tap // 5 - 1
    column = 2 * (p % pooled_width) + q % 2 + tap % 5 - 1
    inside = (t < TAPS) & (row >= 0) & (row < height) & (column >= 0) & (column < width)
    return (t // 25 * height + row) * width + column, inside


@triton.jit
def convolve(
    x_ptr, w_ptr, bias_ptr, groups_ptr, active_ptr, h_ptr, h_t_ptr, winner_ptr,
    batch, height, width, pooled_width, positions,
    UNEVEN: tl.constexpr, PRECISION: tl.constexpr,
    TAPS: tl.constexpr, T: tl.constexpr, C: tl.constexpr,
    B: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """h[k] = maxpool(relu(conv(x[group(k)]))) at SPAN positions of B samples.

    Winner is the q of a maximum, or 4 where ReLU cut it off and no patch gets its gradient.
    """
    first, k = tl.program_id(0) * SPAN, tl.program_id(2)
    if UNEVEN:
        if tl.load(active_ptr + k) == 0:
            return
    group = tl.load(groups_ptr + k).to(tl.int64)
    b, c, t = tl.program_id(1) * B + tl.arange(0, B), tl.arange(0, C), tl.arange(0, T)
    x_ptr += group * batch * (TAPS // 25) * height * width
    row = x_ptr + b[:, None] * (TAPS // 25) * height * width
    w = tl.load(w_ptr + (k * C + c)[:, None] * TAPS + t[None, :], mask=t[None, :] < TAPS, other=0.0)
    bias = tl.load(bias_ptr + k * C + c)[:, None]
    start = k.to(tl.int64) * positions * C * batch
    here = (c[:, None] < C) & (b[None, :] < batch)
    for p in range(first, tl.minimum(first + SPAN, positions)):
        best = tl.full((C, B), -float("inf"), dtype=tl.float32)
        winner = tl.zeros((C, B), dtype=tl.int32)
        for q in range(4):
            pixel, inside = pixels_of(p, q, t, height, width, pooled_width, TAPS)
            x = tl.load(
                row + pixel[None, :], mask=(b[:, None] < batch) & inside[None, :], other=0.0
            )
            z = tl.dot(w, tl.trans(x), input_precision=PRECISION) + bias
            winner = tl.where(z > best, q, winner)
            best = tl.maximum(best, z)
        winner = tl.where(best > 0, winner, 4)
        h = tl.maximum(best, 0.0)
        i = p * C + c[:, None]
        tl.store(h_ptr + start + b[None, :] * positions * C + i, h, mask=here)
        tl.store(h_t_ptr + start + i * batch + b[None, :], h, mask=here)
        tl.store(winner_ptr + start + i * batch + b[None, :], winner.to(tl.int8), mask=here)


@triton.jit
def sums(
    x_ptr, w_ptr, part_ptr, active_ptr, batch, inputs, outputs,
    UNEVEN: tl.constexpr, PRECISION: tl.constexpr,
    B: tl.constexpr, BO: tl.constexpr, BI: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """part[k, s] = w[k] x[k]^T over the SPAN inputs of piece s, a tile of BO outputs."""
    tile, piece, k = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if UNEVEN:
        if tl.load(active_ptr + k) == 0:
            return
    b = tl.arange(0, B)
    o = tile * BO + tl.arange(0, BO)
    first, last = piece * SPAN, tl.minimum(piece * SPAN + SPAN, inputs)
    total = products(
        w_ptr + k.to(tl.int64) * outputs * inputs, x_ptr + k.to(tl.int64) * batch * inputs,
        o, b, outputs, batch, inputs, first, last, BO, B, BI, PRECISION,
    )  # fmt: skip
    start = (k.to(tl.int64) * tl.num_programs(1) + piece) * outputs * batch
    here = (o[:, None] < outputs) & (b[None, :] < batch)
    tl.store(part_ptr + start + o[:, None] * batch + b[None, :], total, mask=here)


@triton.jit
def join(
    part_ptr, bias_ptr, h_ptr, h_t_ptr, active_ptr, batch, outputs, pieces,
    UNEVEN: tl.constexpr, B: tl.constexpr, BO: tl.constexpr,
):  # fmt: skip
    """h[k] = relu(sum of part[k] + bias[k]), a tile of BO outputs."""
    k = tl.program_id(0)
    if UNEVEN:
        if tl.load(active_ptr + k) == 0:
            return
    b = tl.arange(0, B)
    o = tl.program_id(1) * BO + tl.arange(0, BO)
    here = (o[:, None] < outputs) & (b[None, :] < batch)
    place = o[:, None] * batch + b[None, :]
    part_ptr += k.to(tl.int64) * pieces * outputs * batch
    total = tl.zeros((BO, B), dtype=tl.float32)
    for piece in range(pieces):
        total += tl.load(part_ptr + piece * outputs * batch + place, mask=here, other=0.0)
    total += tl.load(bias_ptr + k * outputs + o, mask=o < outputs, other=0.0)[:, None]
    h = tl.maximum(total, 0.0)
    start = k.to(tl.int64) * batch * outputs
    tl.store(h_ptr + start + b[None, :] * outputs + o[:, None], h, mask=here)
    tl.store(h_t_ptr + start + place, h, mask=here)


@triton.jit
def convolve_back(
    d_ptr, w_ptr, winner_ptr, x_t_ptr, groups_ptr, active_ptr, part_ptr,
    batch, outputs, height, width, pooled_width, positions,
    UNEVEN: tl.constexpr, PRECISION: tl.constexpr,
    TAPS: tl.constexpr, T: tl.constexpr, C: tl.constexpr,
    B: tl.constexpr, BO: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """part[k, s] = the convolution's gradient from the SPAN positions of piece s, C x T.

    The gradient (d w)[k] at the pooled outputs lives in registers only. Tap number TAPS is a
    constant 1, so that its column is the gradient of the bias.
    """
    piece, k = tl.program_id(0), tl.program_id(1)
    if UNEVEN:
        if tl.load(active_ptr + k) == 0:
            return
    group = tl.load(groups_ptr + k).to(tl.int64)
    b, c, t = tl.arange(0, B), tl.arange(0, C), tl.arange(0, T)
    d_ptr += k.to(tl.int64) * batch * outputs
    w_ptr += k.to(tl.int64) * outputs * positions * C
    winner_ptr += k.to(tl.int64) * positions * C * batch
    x_t_ptr += group * batch * (TAPS // 25) * height * width
    total = tl.zeros((C, T), dtype=tl.float32)
    for p in range(piece * SPAN, tl.minimum(piece * SPAN + SPAN, positions)):
        g = tl.zeros((C, B), dtype=tl.float32)
        for first in range(0, outputs, BO):
            o = first + tl.arange(0, BO)
            w = tl.load(
                w_ptr + o[:, None] * positions * C + (p * C + c)[None, :],
                mask=o[:, None] < outputs, other=0.0,
            )  # fmt: skip
            d = load_tile(d_ptr, b, o, batch, outputs)
            g = tl.dot(tl.trans(w), tl.trans(d), g, input_precision=PRECISION)
        winner = tl.load(
            winner_ptr + (p * C + c)[:, None] * batch + b[None, :],
            mask=b[None, :] < batch, other=4,
        )  # fmt: skip
        for q in range(4):
            pixel, inside = pixels_of(p, q, t, height, width, pooled_width, TAPS)
            x = tl.load(
                x_t_ptr + pixel[:, None] * batch + b[None, :],
                mask=inside[:, None] & (b[None, :] < batch), other=0.0,
            )  # fmt: skip
            x = tl.where(t[:, None] == TAPS, 1.0, x)
            mine = tl.where(winner == q, g, 0.0)
            total = tl.dot(mine, tl.trans(x), total, input_precision=PRECISION)
    start = (k.to(tl.int64) * tl.num_programs(0) + piece) * C * T
    tl.store(part_ptr + start + c[:, None] * T + t[None, :], total)


@triton.jit
def convolve_update(
    part_ptr, w_ptr, m_ptr, v_ptr, mask_ptr,
    bias_ptr, bias_m_ptr, bias_v_ptr, bias_mask_ptr,
    rate_ptr, root_ptr, active_ptr, pieces,
    BETA1: tl.constexpr, BETA2: tl.constexpr, EPSILON: tl.constexpr,
    MASKED: tl.constexpr, BIAS_MASKED: tl.constexpr, UNEVEN: tl.constexpr,
    TAPS: tl.constexpr, T: tl.constexpr, C: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Adam step of BC channels' kernels and biases, from the pieces of their gradient."""
    k = tl.program_id(0)
    if UNEVEN:
        if tl.load(active_ptr + k) == 0:
            return
    c, t = tl.program_id(1) * BC + tl.arange(0, BC), tl.arange(0, T)
    part_ptr += k.to(tl.int64) * pieces * C * T
    grad = tl.zeros((BC, T), dtype=tl.float32)
    for piece in range(pieces):
        grad += tl.load(part_ptr + piece * C * T + c[:, None] * T + t[None, :])
    grad_b = tl.sum(tl.where(t[None, :] == TAPS, grad, 0.0), 1)
    here = (t[None, :] < TAPS) & (c[:, None] < C)
    place = (k * C + c)[:, None] * TAPS + t[None, :]
    if MASKED:
        grad = tl.where(tl.load(mask_ptr + place, mask=here, other=0) != 0, grad, 0.0)
    spot = k * C + c
    if BIAS_MASKED:
        grad_b = tl.where(tl.load(bias_mask_ptr + spot) != 0, grad_b, 0.0)
    active = tl.load(active_ptr + k) != 0
    rate, root = tl.load(rate_ptr + k), tl.load(root_ptr + k)
    w = tl.load(w_ptr + place, mask=here, other=0.0)
    m = tl.load(m_ptr + place, mask=here, other=0.0)
    v = tl.load(v_ptr + place, mask=here, other=0.0)
    w, m, v = adam(w, m, v, grad, rate, root, BETA1, BETA2, EPSILON)
    tl.store(w_ptr + place, w, mask=here & active)
    tl.store(m_ptr + place, m, mask=here & active)
    tl.store(v_ptr + place, v, mask=here & active)
    bias, m_b, v_b = (
        tl.load(bias_ptr + spot),
        tl.load(bias_m_ptr + spot),
        tl.load(bias_v_ptr + spot),
    )
    bias, m_b, v_b = adam(bias, m_b, v_b, grad_b, rate, root, BETA1, BETA2, EPSILON)
    on = (c < C) & active
    tl.store(bias_ptr + spot, bias, mask=on)
    tl.store(bias_m_ptr + spot, m_b, mask=on)
    tl.store(bias_v_ptr + spot, v_b, mask=on)
