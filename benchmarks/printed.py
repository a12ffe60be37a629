"""Compare what a page says that an example prints with what it prints here.

Words, names and the numbers in them are the same everywhere. Numbers that stand by themselves were
measured, and other processors round otherwise: training with AVX-512, AVX2, AVX and SSE moved the
figures of these pages by up to 0.007, those of one class, of which a test split has 36 samples,
by up to 0.038, and a share of a class by one sample, 0.028. Threads moved none.
"""

import re

NEAR = 0.03  # of accuracies, entropies, percentages as shares: one sample of a class
NEAR_OF_A_CLASS = 0.06  # of the rows of tables with a row for each class: two samples
SHARE = 0.05  # of counts, so that those below 20 are exact, and of figures from 10 on
NUMBER = re.compile(r"([(\[]*)([-+]?\d+(?:,\d{3})*(?:\.(\d+))?)(%?)([^\w%]*)")


def difference(told: str, printed: str) -> str | None:
    """The first two lines that do not say the same, or None."""
    lines, result = _lines(told), _lines(printed)
    for line, other in zip(lines, result, strict=False):
        near = NEAR_OF_A_CLASS if "│" in line else NEAR
        words, others = line.split(), other.split()
        same = len(words) == len(others)
        if not same or not all(_same(*pair, near) for pair in zip(words, others, strict=True)):
            return f"{line.strip()!r}, not {other.strip()!r}"
    return None if len(lines) == len(result) else f"{len(lines)} lines, not {len(result)}"


def _lines(text: str) -> list[str]:
    """Without what nobody can tell beforehand: seconds, digests, the length of a rule."""
    text = re.sub(r"(?<![\w.])\d+(\.\d+)? s\b", "some s", text)
    text = re.sub(r"\b[0-9a-f]{16,}\b", "digest", text)
    return re.sub(r"[─━]+", "-", text).strip("\n").splitlines()


def _same(word: str, other: str, near: float) -> bool:
    one, two = NUMBER.fullmatch(word), NUMBER.fullmatch(other)
    if not (one and two):
        return word == other
    around = [(n[1], len(n[3] or ""), n[4], n[5]) for n in (one, two)]  # decimals, too
    a, b = (float(n[2].replace(",", "")) for n in (one, two))
    measured = near if one[3] and abs(a) < 10 else SHARE * abs(a)
    return around[0] == around[1] and abs(a - b) <= (100 * near if one[4] else measured)
