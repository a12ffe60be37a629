"""Cumulants of samples, orders 1 to 4: whole tensors for a few dimensions, diagonals for many.

The n-th cumulant is the n-th derivative at 0 of W(j) = ln<exp(j.x)>. Of a sample, with c = x - mean
and m the means of products of c:

    k_i = mean, k_ij = m_ij, k_ijk = m_ijk, k_ijkl = m_ijkl - m_ij m_kl - m_ik m_jl - m_il m_jk
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from intarsia.errors import DataError, shortened
from intarsia.measure.evaluation import Renderable

if TYPE_CHECKING:
    from rich.table import Table

ORDERS = 4  # the highest order
WHOLE_UP_TO = 8  # dimensions of which whole tensors are kept: the fourth has so many to the fourth
SHOWN = 12  # rows of a printed table
CHUNK = 2**22  # numbers at a time, of the products that standard errors need
LETTERS = "ijkl"


@dataclass(frozen=True, eq=False)
class Cumulants(Renderable):
    """Cumulants of D numbers: `values[n]` of order n + 1, with standard errors where sampled.

    With `diagonal` each order has D numbers, those of each dimension by itself; else order n is a
    symmetric tensor with n axes of D. `count` is the number of samples, None where exact.
    """

    values: tuple[Tensor, ...]
    diagonal: bool
    count: int | None = None
    unbiased: bool = False
    errors: tuple[Tensor, ...] | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.values) <= ORDERS:
            raise DataError(f"cumulants have orders 1 to {ORDERS}, got {len(self.values)} of them")
        size = self.dimensions
        for order, value in enumerate(self.values, start=1):
            shape = (size,) if self.diagonal else (size,) * order
            if tuple(value.shape) != shape:
                raise DataError(
                    f"the cumulant of order {order} has shape {tuple(value.shape)}: expected "
                    f"{shape}"
                )

    def __getitem__(self, order: int) -> Tensor:
        """The cumulant of an order, counted from 1."""
        if type(order) is not int or not 1 <= order <= len(self.values):
            raise DataError(
                f"there is no cumulant of order {shortened(order)}: these have 1 to {self.order}"
            )
        return self.values[order - 1]

    @property
    def order(self) -> int:
        """The highest order."""
        return len(self.values)

    @property
    def dimensions(self) -> int:
        return int(self.values[0].numel())

    def diagonals(self) -> "Cumulants":
        """Those of each dimension by itself."""
        if self.diagonal:
            return self
        errors = None if self.errors is None else tuple(map(_diagonal, self.errors))
        values = tuple(map(_diagonal, self.values))
        return Cumulants(values, True, self.count, self.unbiased, errors)

    def affine(self, weight: Any, bias: Any = None) -> "Cumulants":
        """The cumulants of W x + b: every axis is multiplied by W, and b is added to order 1 alone.

        Orders do not mix, so this is exact. Diagonals do not say how dimensions hang together, and
        are refused unless there is one dimension.
        """
        matrix = _matrix(weight, self.dimensions)
        if self.diagonal and self.dimensions > 1:
            raise DataError(
                f"these are diagonals of {self.dimensions} dimensions, which do not fix those of "
                "W x: take whole tensors, cumulants(x, diagonal=False)"
            )
        values = [
            _times(matrix, value.reshape((self.dimensions,) * order))
            for order, value in enumerate(self.values, start=1)
        ]
        if bias is not None:
            values[0] = values[0] + _vector(bias, len(matrix))
        return Cumulants(tuple(values), False, self.count, self.unbiased)

    def independent(self, copies: int) -> "Cumulants":
        """Those of so many independent copies side by side: whole tensors with zeros between."""
        if type(copies) is not int or not 1 <= copies * self.dimensions <= WHOLE_UP_TO:
            raise DataError(
                f"{shortened(copies)} copies of {self.dimensions} dimensions are asked for: whole "
                f"tensors are kept of 1 to {WHOLE_UP_TO} dimensions"
            )
        if self.diagonal and self.dimensions > 1:
            raise DataError("these are diagonals: copies need whole tensors")
        size, values = self.dimensions, []
        for order, value in enumerate(self.values, start=1):
            whole = value.new_zeros((copies * size,) * order)
            for copy in range(copies):
                place = (slice(copy * size, (copy + 1) * size),) * order
                whole[place] = value.reshape((size,) * order)
            values.append(whole)
        return Cumulants(tuple(values), False, self.count, self.unbiased)

    def to_json(self) -> dict[str, Any]:
        """Plain values, order by order."""
        errors = None if self.errors is None else [error.tolist() for error in self.errors]
        return {
            "dimensions": self.dimensions,
            "samples": self.count,
            "diagonal": self.diagonal,
            "unbiased": self.unbiased,
            "cumulants": [value.tolist() for value in self.values],
            "standard_errors": errors,
        }

    def __rich__(self) -> "Table":
        from rich import box
        from rich.table import Table
        from rich.text import Text

        own = self.diagonals()
        drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in ("dimension", *(f"k{n}" for n in range(1, own.order + 1))):
            drawn.add_column(name, justify="right")
        for place in range(min(own.dimensions, SHOWN)):
            drawn.add_row(str(place), *(Text(text) for text in own._texts(place)))
        if own.dimensions > SHOWN:
            drawn.caption = f"and {own.dimensions - SHOWN} more dimensions"
        return drawn

    def _texts(self, place: int) -> Iterator[str]:
        for order, value in enumerate(self.values):
            error = "" if self.errors is None else f" ± {float(self.errors[order][place]):.2g}"
            yield f"{float(value[place]):.4g}{error}"


def cumulants(
    x: Any,
    order: int = ORDERS,
    *,
    diagonal: bool | None = None,
    unbiased: bool = False,
    errors: bool = True,
) -> Cumulants:
    """The cumulants of samples up to an order: N numbers, or N rows; further axes are flattened.

    By default whole tensors of up to 8 dimensions, diagonals of more; `diagonal` chooses.
    `unbiased` gives k-statistics, whose means are the cumulants themselves; without it they are
    those of the sample as a law of its own, for which an affine map is exact. Standard errors are
    those of the influence of each sample, good to leading order in 1 / N.
    """
    if type(order) is not int or not 1 <= order <= ORDERS:
        raise DataError(f"order is {shortened(order)}: expected a whole number from 1 to {ORDERS}")
    rows = samples_of(x)
    count, size = rows.shape
    if count < (least := order if unbiased else 1):
        raise DataError(
            f"{count} samples are too few: unbiased cumulants of order {order} need {least}"
        )
    own = size > WHOLE_UP_TO if diagonal is None else bool(diagonal)
    if not own and size > WHOLE_UP_TO:
        raise DataError(
            f"the samples have {size} dimensions: whole tensors are kept of up to {WHOLE_UP_TO}, "
            "take diagonal=True"
        )
    mean = rows.mean(0)
    moments = _moments(rows - mean, order, own)
    values = (mean, *_combined(moments, count if unbiased else None))
    found = tuple(_errors(rows - mean, moments, order, own)) if errors else None
    if not all(torch.isfinite(value).all() for value in (*values, *(found or ()))):
        raise DataError(
            f"the cumulants up to order {order}, or their standard errors, leave the range of "
            "float64: scale the samples, or ask for a lower order"
        )
    return Cumulants(values, own, count, unbiased, found)


def samples_of(x: Any) -> Tensor:
    """Samples as N x D in float64, refused where they are not finite numbers."""
    try:
        tensor = x.detach().cpu() if isinstance(x, Tensor) else torch.tensor(np.asarray(x))
    except (TypeError, ValueError) as error:
        raise DataError(f"the samples are not numbers: {str(error)[:200]}") from None
    if tensor.is_complex():
        raise DataError("the samples are complex numbers: expected real ones")
    if not tensor.dim() or not tensor.numel():
        raise DataError(
            f"the samples have shape {tuple(tensor.shape)}: expected N numbers, or N rows of them"
        )
    rows = tensor.double().reshape(len(tensor), -1)
    if not torch.isfinite(rows).all():
        first = int((~torch.isfinite(rows)).any(1).nonzero()[0])
        raise DataError(f"the samples are not finite, first in row {first} (counted from 0)")
    return rows


def _moments(c: Tensor, order: int, diagonal: bool) -> list[Tensor]:
    """Means of products of two to `order` centred numbers."""
    if diagonal:
        return [(c**n).mean(0) for n in range(2, order + 1)]
    count, sums = len(c), [c.new_zeros((c.shape[1],) * n) for n in range(2, order + 1)]
    for part in _chunks(c, max(order, 2)):
        for n in range(2, order + 1):
            # The last product is a matrix product: half of the axes on either side.
            left, right = _products(part, n // 2), _products(part, n - n // 2)
            sums[n - 2] += (left.T @ right).reshape(sums[n - 2].shape)
    return [total / count for total in sums]


def _products(c: Tensor, times: int) -> Tensor:
    """Products of `times` numbers of each row: N x D ** times."""
    result = c
    for _ in range(times - 1):
        result = (result[:, :, None] * c[:, None, :]).flatten(1)
    return result


def _combined(moments: Sequence[Tensor], count: int | None) -> list[Tensor]:
    """Cumulants from order 2 on; with a count, k-statistics."""
    values = []
    for order, m in enumerate(moments, start=2):
        pairs = _pairings(moments[0], m.dim() == 1) if order == 4 else torch.zeros_like(m)
        n = float(count or 0)
        if count is None:
            values.append(m - pairs)
        elif order == 2:
            values.append(m * n / (n - 1))
        elif order == 3:
            values.append(m * n**2 / ((n - 1) * (n - 2)))
        else:
            scale = n**2 / ((n - 1) * (n - 2) * (n - 3))
            values.append(scale * ((n + 1) * m - (n - 1) * pairs))
    return values


def _pairings(m: Tensor, diagonal: bool) -> Tensor:
    """m_ij m_kl + m_ik m_jl + m_il m_jk."""
    if diagonal:
        return 3 * m**2
    whole = torch.einsum("ij,kl->ijkl", m, m)
    return whole + whole.permute(0, 2, 1, 3) + whole.permute(0, 3, 2, 1)


def _errors(c: Tensor, moments: Sequence[Tensor], order: int, diagonal: bool) -> Iterator[Tensor]:
    """Standard errors: the root mean square of what each sample adds, over the root of N."""
    for n in range(1, order + 1):
        total = torch.zeros((), dtype=c.dtype)
        for part in _chunks(c, 1 if diagonal else n):
            own = _influence_diagonal if diagonal else _influence
            total = total + (own(part, moments, n) ** 2).sum(0)
        yield total.sqrt() / len(c)


def _influence_diagonal(c: Tensor, m: Sequence[Tensor], order: int) -> Tensor:
    if order == 1:
        return c
    if order == 2:
        return c**2 - m[0]
    if order == 3:
        return c**3 - m[1] - 3 * c * m[0]
    return c**4 - m[2] - 4 * c * m[1] - 6 * m[0] * (c**2 - m[0])


def _influence(c: Tensor, m: Sequence[Tensor], order: int) -> Tensor:
    """By sample, the derivative of a cumulant tensor in the weight of that sample."""
    size = (len(c), *(c.shape[1],) * order)
    own = _products(c, order).reshape(size)
    if order == 1:
        return own
    if order == 2:
        return own - m[0]
    rest = LETTERS[:order]
    result = own - m[order - 2]
    for axis in rest:  # the mean moves with each sample
        others = rest.replace(axis, "")
        result = result - torch.einsum(f"n{axis},{others}->n{rest}", c, m[order - 3])
    if order == 4:
        two = _products(c, 2).reshape(len(c), c.shape[1], c.shape[1]) - m[0]
        for first, second in (("ij", "kl"), ("ik", "jl"), ("il", "jk")):
            result = result - torch.einsum(f"n{first},{second}->nijkl", two, m[0])
            result = result - torch.einsum(f"n{second},{first}->nijkl", two, m[0])
    return result


def _chunks(c: Tensor, order: int) -> Iterator[Tensor]:
    """Rows, so many at a time that their products of this order stay few."""
    return iter(c.split(max(1, CHUNK // c.shape[1] ** order)))


def _diagonal(value: Tensor) -> Tensor:
    places = torch.arange(value.shape[0])
    return value[(places,) * value.dim()]


def _times(matrix: Tensor, value: Tensor) -> Tensor:
    """Every axis of a tensor multiplied by the matrix."""
    for axis in range(value.dim()):
        value = torch.tensordot(matrix, value, dims=([1], [axis])).movedim(0, axis)
    return value


def _matrix(weight: Any, columns: int) -> Tensor:
    matrix = _finite("weight", weight)
    if matrix.dim() != 2 or matrix.shape[1] != columns or not matrix.numel():
        raise DataError(
            f"the weight has shape {tuple(matrix.shape)}: expected rows of {columns}, a number for "
            "each dimension"
        )
    return matrix


def _finite(what: str, given: Any) -> Tensor:
    try:
        numbers = torch.as_tensor(given).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"the {what} is not made of numbers: {str(error)[:200]}") from None
    if numbers.is_complex() or not torch.isfinite(numbers).all():
        raise DataError(f"the {what} holds numbers that are complex or not finite")
    return numbers.double()


def _vector(bias: Any, size: int) -> Tensor:
    vector = _finite("bias", bias)
    if tuple(vector.shape) != (size,):
        raise DataError(f"the bias has shape {tuple(vector.shape)}: expected ({size},)")
    return vector
