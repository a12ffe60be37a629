"""Triton kernels for stacked linear layers: a step that touches each weight as little as can be.

A step of K modules reads every weight once going forward, and going back reads and writes weights
and moments once: the gradient of a weight is made in registers, where Adam uses it up. What is left
is the time that the memory needs for 7 numbers a weight.

In an UNEVEN bank some modules have fewer batches in an epoch than others, or smaller ones.
`advance` says who has one left in this step; the programs of all others return at once.

Shapes: K modules, B samples, I inputs and O outputs of a layer; all float32, contiguous. Samples,
activations and gradients are kept twice, batch first and batch last, because the matrix units read
both operands of a product along the axis that is summed.
"""

import triton
import triton.language as tl


@triton.jit
def advance(
    step_ptr, left_ptr, active_ptr, cursor_ptr, base_rate_ptr, rate_ptr, root_ptr, batch, modules,
    LOG_BETA1: tl.constexpr, LOG_BETA2: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Begin a step: move on in the epoch's order, correct Adam's step size and root for bias.

    Modules that have batches left in the epoch are active in it.
    """
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = k < modules
    left = tl.load(left_ptr + k, mask=there, other=0)
    tl.store(left_ptr + k, tl.maximum(left - 1, 0), mask=there)
    tl.store(active_ptr + k, (left > 0).to(tl.int32), mask=there)
    step = tl.load(step_ptr + k, mask=there, other=0.0)
    step = tl.where(left > 0, step + 1, step)
    tl.store(step_ptr + k, step, mask=there)
    count = tl.maximum(step, 1.0).to(tl.float64)
    rate = tl.load(base_rate_ptr + k, mask=there, other=0.0) / (1 - tl.exp(count * LOG_BETA1))
    tl.store(rate_ptr + k, rate.to(tl.float32), mask=there)
    root = tl.sqrt(1 - tl.exp(count * LOG_BETA2))
    tl.store(root_ptr + k, root.to(tl.float32), mask=there)
    if tl.program_id(0) == 0:
        tl.store(cursor_ptr, tl.load(cursor_ptr) + batch)


@triton.jit
def gather(
    x_ptr, y_ptr, order_ptr, ends_ptr, columns_ptr, cursor_ptr, groups_ptr,
    out_ptr, out_t_ptr, labels_ptr, samples, features, batch, width,
    COLUMNS: tl.constexpr, GROUPED: tl.constexpr, UNEVEN: tl.constexpr,
    B: tl.constexpr, BI: tl.constexpr,
):  # fmt: skip
    """out[g, b, j] = x[order[group(g), cursor + b], columns[g, j]]; labels likewise."""
    g = tl.program_id(0)
    group = tl.load(groups_ptr + g) if GROUPED else g
    b = tl.arange(0, B)
    j = tl.program_id(1) * BI + tl.arange(0, BI)
    cursor = tl.load(cursor_ptr)
    if UNEVEN:
        if tl.load(ends_ptr + group) <= cursor:
            return
    row = tl.load(order_ptr + group * samples + cursor + b, mask=b < batch, other=0).to(tl.int64)
    if tl.program_id(1) == 0:
        tl.store(labels_ptr + g * batch + b, tl.load(y_ptr + row), mask=b < batch)
    column = tl.load(columns_ptr + g * width + j, mask=j < width, other=-1) if COLUMNS else j
    inside = (b[:, None] < batch) & (j[None, :] < width)
    value = tl.load(
        x_ptr + row[:, None] * features + column[None, :],
        mask=inside & (column[None, :] >= 0), other=0.0,
    )  # fmt: skip
    start = g.to(tl.int64) * batch * width
    tl.store(out_ptr + start + b[:, None] * width + j[None, :], value, mask=inside)
    tl.store(out_t_ptr + start + j[None, :] * batch + b[:, None], value, mask=inside)


@triton.jit
def load_tile(ptr, row, column, rows, columns):
    """Entries of a matrix of rows x columns, 0 beyond its edges."""
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    return tl.load(ptr + row[:, None] * columns + column[None, :], mask=inside, other=0.0)


@triton.jit
def products(
    left_ptr, right_ptr, i, j, lefts, rights, width, start, end,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Of rows i of one matrix with rows j of another, over their columns from start to end."""
    total = tl.zeros((LEFT, RIGHT), dtype=tl.float32)
    for first in range(start, end, STEP):
        column = first + tl.arange(0, STEP)
        left = load_tile(left_ptr, i, column, lefts, width)
        right = load_tile(right_ptr, j, column, rights, width)
        total = tl.dot(left, tl.trans(right), total, input_precision=PRECISION)
    return total


@triton.jit
def forward(
    x_ptr, w_ptr, bias_ptr, h_ptr, h_t_ptr, groups_ptr, seeds_ptr, cursor_ptr, active_ptr,
    batch, inputs, outputs, dropout, full_width,
    GROUPED: tl.constexpr, DROP: tl.constexpr, UNEVEN: tl.constexpr, PRECISION: tl.constexpr,
    B: tl.constexpr, BO: tl.constexpr, BI: tl.constexpr,
):  # fmt: skip
    """h[k] = dropout(relu(x[group(k)] w[k]^T + bias[k])), a tile of BO outputs."""
    k, tile = tl.program_id(0), tl.program_id(1)
    if UNEVEN:
        if tl.load(active_ptr + k) == 0:
            return
    group = tl.load(groups_ptr + k) if GROUPED else k
    b = tl.arange(0, B)
    o = tile * BO + tl.arange(0, BO)
    total = products(
        x_ptr + group.to(tl.int64) * batch * inputs, w_ptr + k.to(tl.int64) * outputs * inputs,
        b, o, batch, outputs, inputs, 0, inputs, B, BO, BI, PRECISION,
    )  # fmt: skip
    total += tl.load(bias_ptr + k * outputs + o, mask=o < outputs, other=0.0)[None, :]
    h = tl.maximum(total, 0.0)
    if DROP:
        # counted by sample of the epoch and unit of the whole layer, not by the width that this
        # bank is padded to, so that a module draws the same in any bank
        place = (tl.load(cursor_ptr) + b)[:, None] * full_width + o[None, :]
        drawn = tl.rand(tl.load(seeds_ptr + k), place)
        h = tl.where(drawn >= dropout, h / (1 - dropout), 0.0)
    here = (b[:, None] < batch) & (o[None, :] < outputs)
    start = k.to(tl.int64) * batch * outputs
    tl.store(h_ptr + start + b[:, None] * outputs + o[None, :], h, mask=here)
    tl.store(h_t_ptr + start + o[None, :] * batch + b[:, None], h, mask=here)


@triton.jit
def head(
    h_ptr, w_ptr, bias_ptr, d_ptr, d_t_ptr, labels_ptr, groups_ptr,
    table_ptr, weight_ptr, bonus_ptr, active_ptr, sizes_ptr, loss_ptr,
    batch, inputs, outputs, classes, temperature,
    BIAS: tl.constexpr, BONUS: tl.constexpr, UNEVEN: tl.constexpr, PRECISION: tl.constexpr,
    B: tl.constexpr, C: tl.constexpr, BI: tl.constexpr,
):  # fmt: skip
    """Logits, loss, and the loss's gradient d at the logits, of one module.

    Samples beyond the module's size of batches fill its rows up and count for nothing.
    """
    k = tl.program_id(0)
    if UNEVEN:
        if tl.load(active_ptr + k) == 0:
            return
    group = tl.load(groups_ptr + k)
    b, c = tl.arange(0, B), tl.arange(0, C)
    z = products(
        h_ptr + k.to(tl.int64) * batch * inputs, w_ptr + k.to(tl.int64) * outputs * inputs,
        b, c, batch, outputs, inputs, 0, inputs, B, C, BI, PRECISION,
    )  # fmt: skip
    if BIAS:
        z += tl.load(bias_ptr + k * outputs + c, mask=c < outputs, other=0.0)[None, :]
    there = c[None, :] < outputs
    z = tl.where(there, z / temperature, -float("inf"))
    z = z - tl.max(z, 1)[:, None]
    p = tl.exp(z)
    total = tl.sum(p, 1)[:, None]
    p = p / total
    log_p = tl.where(there, z - tl.log(total), 0.0)
    y = tl.load(labels_ptr + group * batch + b, mask=b < batch, other=0)
    goal = tl.load(
        table_ptr + (k * classes + y)[:, None] * outputs + c[None, :], mask=there, other=0.0
    )
    size = tl.load(sizes_ptr + k) if UNEVEN else batch
    share = tl.load(weight_ptr + k * classes + y, mask=b < size, other=0.0)
    share = share / tl.maximum(tl.sum(share, 0), 1e-30)
    loss = -tl.sum(goal * log_p, 1)
    d = p * tl.sum(goal, 1)[:, None] - goal  # rows sum to 1 up to rounding only
    if BONUS:
        bonus = tl.load(bonus_ptr + k * classes + y, mask=b < batch, other=0.0)
        negative = tl.sum(p * log_p, 1)
        loss += bonus * negative
        d += bonus[:, None] * p * (log_p - negative[:, None])
    d = d * (share / temperature)[:, None]
    if tl.load(active_ptr + k) != 0:
        tl.store(loss_ptr + k, tl.load(loss_ptr + k) + tl.sum(loss * share, 0))
    here = (b[:, None] < batch) & there
    start = k.to(tl.int64) * batch * outputs
    tl.store(d_ptr + start + b[:, None] * outputs + c[None, :], d, mask=here)
    tl.store(d_t_ptr + start + c[None, :] * batch + b[:, None], d, mask=here)


@triton.jit
def back(
    d_ptr, w_ptr, h_ptr, out_ptr, out_t_ptr, active_ptr, batch, inputs, outputs, dropout,
    UNEVEN: tl.constexpr, PRECISION: tl.constexpr,
    B: tl.constexpr, BO: tl.constexpr, BI: tl.constexpr,
):  # fmt: skip
    """out[k] = (d[k] w[k]) where h[k] > 0: the gradient one layer further down, a tile of BI."""
    k, tile = tl.program_id(0), tl.program_id(1)
    if UNEVEN:
        if tl.load(active_ptr + k) == 0:
            return
    b = tl.arange(0, B)
    i = tile * BI + tl.arange(0, BI)
    d_ptr += k.to(tl.int64) * batch * outputs
    w_ptr += k.to(tl.int64) * outputs * inputs
    total = tl.zeros((B, BI), dtype=tl.float32)
    for first in range(0, outputs, BO):
        o = first + tl.arange(0, BO)
        d = load_tile(d_ptr, b, o, batch, outputs)
        w = load_tile(w_ptr, o, i, outputs, inputs)
        total = tl.dot(d, w, total, input_precision=PRECISION)
    here = (b[:, None] < batch) & (i[None, :] < inputs)
    start = k.to(tl.int64) * batch * inputs
    h = tl.load(h_ptr + start + b[:, None] * inputs + i[None, :], mask=here, other=0.0)
    total = tl.where(h > 0, total / (1 - dropout), 0.0)
    tl.store(out_ptr + start + b[:, None] * inputs + i[None, :], total, mask=here)
    tl.store(out_t_ptr + start + i[None, :] * batch + b[:, None], total, mask=here)


@triton.jit
def adam(
    w, m, v, grad, rate, root,
    BETA1: tl.constexpr, BETA2: tl.constexpr, EPSILON: tl.constexpr,
):  # fmt: skip
    """Adam's step; `rate` and `root` are corrected for bias as `advance` leaves them."""
    m = m + (1 - BETA1) * (grad - m)
    v = BETA2 * v + (1 - BETA2) * grad * grad
    return w - rate * m / (tl.sqrt(v) / root + EPSILON), m, v


@triton.jit
def update(
    d_t_ptr, x_t_ptr, w_ptr, m_ptr, v_ptr, mask_ptr,
    bias_ptr, bias_m_ptr, bias_v_ptr, bias_mask_ptr,
    groups_ptr, rate_ptr, root_ptr, active_ptr, batch, inputs, outputs,
    BETA1: tl.constexpr, BETA2: tl.constexpr, EPSILON: tl.constexpr,
    GROUPED: tl.constexpr, MASKED: tl.constexpr, BIAS: tl.constexpr, BIAS_MASKED: tl.constexpr,
    UNEVEN: tl.constexpr, PRECISION: tl.constexpr,
    B: tl.constexpr, BO: tl.constexpr, BI: tl.constexpr,
):  # fmt: skip
    """Gradient and Adam step of a tile of a layer's weights; the first tile does the bias."""
    k = tl.program_id(2)
    if UNEVEN:
        if tl.load(active_ptr + k) == 0:
            return
    o = tl.program_id(1) * BO + tl.arange(0, BO)
    i = tl.program_id(0) * BI + tl.arange(0, BI)
    b = tl.arange(0, B)
    inside = (o[:, None] < outputs) & (i[None, :] < inputs)
    place = k.to(tl.int64) * outputs * inputs + o[:, None] * inputs + i[None, :]
    w = tl.load(w_ptr + place, mask=inside, other=0.0, eviction_policy="evict_first")
    m = tl.load(m_ptr + place, mask=inside, other=0.0, eviction_policy="evict_first")
    v = tl.load(v_ptr + place, mask=inside, other=0.0, eviction_policy="evict_first")
    group = tl.load(groups_ptr + k) if GROUPED else k
    d = load_tile(d_t_ptr + k.to(tl.int64) * batch * outputs, o, b, outputs, batch)
    x = load_tile(x_t_ptr + group.to(tl.int64) * batch * inputs, i, b, inputs, batch)
    grad = tl.dot(d, tl.trans(x), input_precision=PRECISION)
    if MASKED:
        kept = tl.load(mask_ptr + place, mask=inside, other=0)
        grad = tl.where(kept != 0, grad, 0.0)
    active = tl.load(active_ptr + k) != 0
    rate, root = tl.load(rate_ptr + k), tl.load(root_ptr + k)
    w, m, v = adam(w, m, v, grad, rate, root, BETA1, BETA2, EPSILON)
    tl.store(m_ptr + place, m, mask=inside & active, eviction_policy="evict_first")
    tl.store(v_ptr + place, v, mask=inside & active, eviction_policy="evict_first")
    tl.store(w_ptr + place, w, mask=inside & active)
    if BIAS:
        if tl.program_id(0) == 0:
            here = (o < outputs) & active
            spot = k * outputs + o
            grad_b = tl.sum(d, 1)
            if BIAS_MASKED:
                kept_b = tl.load(bias_mask_ptr + spot, mask=here, other=0)
                grad_b = tl.where(kept_b != 0, grad_b, 0.0)
            m_b = tl.load(bias_m_ptr + spot, mask=here, other=0.0)
            v_b = tl.load(bias_v_ptr + spot, mask=here, other=0.0)
            bias = tl.load(bias_ptr + spot, mask=here, other=0.0)
            bias, m_b, v_b = adam(bias, m_b, v_b, grad_b, rate, root, BETA1, BETA2, EPSILON)
            tl.store(bias_m_ptr + spot, m_b, mask=here)
            tl.store(bias_v_ptr + spot, v_b, mask=here)
            tl.store(bias_ptr + spot, bias, mask=here)
