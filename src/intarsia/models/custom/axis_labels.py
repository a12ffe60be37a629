"""Axes not yet named, while a network is being read: labels that unify as its layers meet.

A label says what lies along a dimension: units of one axis, or of several side by side. Axes are
joined where their units meet, cut where a dimension is cut, and made coarser where several of
their entries can only move together (the entries of a head, the channels of a group).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from intarsia.errors import WiringError
from intarsia.models.axes import INPUT, OUTPUT, Axis, Dimension, Parts

# a variable and how many consecutive entries make one of its units; None: entries without units
Piece = tuple[int | None, int]
Word = tuple[Piece, ...]
Label = Word | None
MOST_REPEATS = 64  # of units that are flattened behind other dimensions


class UnreadableError(WiringError):
    """The reason alone; the reader adds which layer."""


@dataclass(frozen=True, eq=False)
class CutDimension:
    """A dimension that a reshape has cut into several, of which it is not yet clear what they are.

    Three times heads times width may be cut into three first, or into heads.
    """

    word: Word
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Factor:
    """One of the dimensions that a group was cut into."""

    group: CutDimension
    place: int


RawLabel = Label | Factor
Labels = tuple[Label, ...]
RawLabels = tuple[RawLabel, ...]


class Variables:
    """Axes as variables: each is one of its own, or stands for pieces of others."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._units: list[int] = []
        self._stands_for: list[Word | None] = []
        self._inputs: set[int] = set()
        self._free: set[int] = set()
        self._loose: set[int] = set()  # born free: a layer's name goes before theirs
        self._joint: set[int] = set()
        self._frozen: set[int] = set()
        self._joint_input = False

    def new(self, name: str, units: int, *, free: bool = False) -> Word:
        """A new axis; a free one belongs to a bare parameter and may turn out not to be units."""
        variable = len(self._names)
        self._names.append(name)
        self._units.append(units)
        self._stands_for.append(None)
        if name == INPUT:
            self._inputs.add(variable)
        if free:
            self._free.add(variable)
            self._loose.add(variable)
        return ((variable, 1),)

    def expand(self, word: Iterable[Piece]) -> Word:
        """The same in variables that stand for themselves."""
        pieces: list[Piece] = []
        for variable, block in word:
            stands_for = None if variable is None else self._stands_for[variable]
            if stands_for is not None:
                pieces.extend(self.expand((v, b * block) for v, b in stands_for))
            elif variable is None and pieces and pieces[-1][0] is None:
                pieces[-1] = (None, pieces[-1][1] + block)
            else:
                pieces.append((variable, block))
        return tuple(pieces)

    def entries(self, word: Iterable[Piece]) -> int:
        return sum(b if v is None else self._units[v] * b for v, b in word)

    def unify(self, one: Word, other: Word) -> None:
        """From now on both are the same units; the finer ones follow the coarser."""
        left, right = list(one), list(other)
        while left and right:
            # The first of each alone: what was cut of entries without units would grow together.
            left[:1], right[:1] = self.expand(left[:1]), self.expand(right[:1])
            a, b = self.entries(left[:1]), self.entries(right[:1])
            if a < b:
                right[:1] = self._cut(right[0], a)
            elif b < a:
                left[:1] = self._cut(left[0], b)
            else:
                self._bind(left.pop(0), right.pop(0))

    def meet(self, one: Label, other: Label, size: int) -> Label:
        """Two dimensions that meet entry by entry."""
        if one is None and other is None:
            return None
        if size == 1:
            return one or other
        empty: Word = ((None, size),)
        self.unify(one or empty, other or empty)
        return self.simple(one if one is not None else other)

    def simple(self, label: Label) -> Label:
        """None where nothing of a label is units."""
        if label is None:
            return None
        word = tuple(
            (None, self.entries([p])) if self._unlabelled(p[0]) else p for p in self.expand(label)
        )
        word = self.expand(word)
        return None if all(variable is None for variable, _ in word) else word

    def cut(self, label: Label, start: int, stop: int) -> Label:
        """The entries from start to stop; of the raw input they are not units any more."""
        if label is None:
            return None
        word: list[Piece] = []
        place = 0
        for piece in self.expand(label):
            length = self.entries([piece])
            first, last = max(start - place, 0), min(stop - place, length)
            place += length
            if first >= last:
                continue
            if (first, last) != (0, length):
                if self.is_input((piece,)):
                    self.join((piece,))
                    piece = (None, length)
                rest: Sequence[Piece] = (piece,)
                if first:
                    rest = self._cut(piece, first)[1:]
                if last - first < self.entries(rest):
                    rest = self._cut(rest[0], last - first)[:1]
                piece = rest[0]
            word.append(piece)
        return self.simple(tuple(word)) if word else None

    def coarsen(self, word: Word, block: int) -> Word:
        """The label of units of `block` entries, made by merging smaller ones where needed."""
        pieces: list[Piece] = []
        for variable, now in self.expand(word):
            if now % block == 0:
                pieces.append((variable, now // block))
                continue
            if variable is None or block % now or self._units[variable] * now % block:
                raise UnreadableError(f"it cuts units of {now} entries into pieces of {block}")
            factor = block // now
            [(parent, _)] = self.new(self._names[variable], self._units[variable] // factor)
            self._replace(variable, ((parent, factor),))
            pieces.append((parent, 1))
        return tuple(pieces)

    def join(self, label: Label) -> None:
        """The units meet outside the weights, so none can be left out alone."""
        for variable, _ in self.expand(label or ()):
            if variable in self._inputs:
                self._joint_input = True
            elif variable is not None:
                self._joint.add(variable)

    def fix(self, label: Label) -> None:
        """Whatever these are but for inputs, they are not units that could change places."""
        variables = (variable for variable, _ in self.expand(label or ()))
        self._frozen.update(v for v in variables if v is not None and v not in self._inputs)

    def release(self, label: Label) -> bool:
        """Say of a bare parameter's entries that they are not units; False for a layer's."""
        word = self.expand(label or ())
        bare = all(self._unlabelled(variable) or variable in self._free for variable, _ in word)
        if bare:
            self.fix(word)
        return bare

    def is_input(self, label: Label) -> bool:
        """Whether this is the raw input and no layer's units."""
        variables = [variable for variable, _ in self.expand(label or ())]
        return bool(variables) and all(v in self._inputs for v in variables)

    def without_input(self, label: Label) -> Label:
        return None if self.is_input(label) else label

    def name_all(self, entries: dict[int, Labels]) -> dict[int, tuple[Dimension, ...]]:
        """Final axes: the output's name goes before the input's, then the first layer's."""
        members: dict[int, list[int]] = {}
        for variable in range(len(self._names)):
            roots = {root for root, _ in self.expand([(variable, 1)])}
            if len(roots) == 1:
                members.setdefault(next(iter(roots)) or 0, []).append(variable)
        names: dict[int, str] = {}
        for root, variables in members.items():
            name = self._choose(variables)
            taken = set(names.values()) - {INPUT, OUTPUT}
            names[root] = f"{name}.{root}" if name in taken else name
        places = [self.expand(x or ()) for some in entries.values() for x in some]
        read = {variable for word in places for variable, _ in word}
        for bare in self._free - self._joint:
            # what one parameter has along one dimension, and nothing else: positions not in use
            if sum(variable == bare for word in places for variable, _ in word) == 1:
                self._frozen.add(bare)
        if sum(names[root] == INPUT for root in read if root is not None) > 1:
            raise UnreadableError(
                "the network reads its input in two ways, such as pixels and channels"
            )

        def dimension(label: Label) -> Dimension:
            word = self.simple(label)
            if word is None:
                return None
            parts = tuple(
                block if root is None else Axis(names[root], block, self._is_joint(root, names))
                for root, block in word
            )
            return parts[0] if len(parts) == 1 and isinstance(parts[0], Axis) else Parts(parts)

        return {key: tuple(dimension(x) for x in labels) for key, labels in entries.items()}

    def _is_joint(self, root: int, names: dict[int, str]) -> bool:
        return root in self._joint or (self._joint_input and names[root] == INPUT)

    def _unlabelled(self, variable: int | None) -> bool:
        return variable is None or variable in self._frozen

    def _choose(self, variables: list[int]) -> str:
        names = [self._names[variable] for variable in variables]
        fixed = next((n for n in (OUTPUT, INPUT) if n in names), None)
        layers = [self._names[v] for v in variables if v not in self._loose]
        return fixed or (layers or names)[0]

    def _bind(self, one: Piece, other: Piece) -> None:
        if one[0] is None or other[0] is None:
            self._freeze(one if other[0] is None else other)
            return
        if one[1] > other[1] or (one[1] == other[1] and other[0] in self._loose):
            one, other = other, one
        if one == other:
            return
        if one[0] == other[0] or other[1] % one[1]:
            raise UnreadableError(f"it joins units of {one[1]} entries with units of {other[1]}")
        if self._unlabelled(one[0]) or self._unlabelled(other[0]):
            self._freeze(one)
            self._freeze(other)
        assert one[0] is not None
        self._replace(one[0], ((other[0], other[1] // one[1]),))

    def _freeze(self, piece: Piece) -> None:
        """Say that these are not units: a bare parameter's may, a layer's may not."""
        variable = piece[0]
        if variable is None or variable in self._frozen:
            return
        if variable in self._inputs:
            self._joint_input = True
        elif variable in self._free:
            self._frozen.add(variable)
        else:
            raise UnreadableError("units of an axis meet entries that are not units")

    def _cut(self, piece: Piece, entries: int) -> tuple[Piece, Piece]:
        variable, block = piece
        if variable is None:
            return (None, entries), (None, block - entries)
        if entries % block:
            raise UnreadableError(f"it cuts units of {block} entries")
        first, name, units = entries // block, self._names[variable], self._units[variable]
        free = variable in self._loose
        pieces = []
        for start, stop in ((0, first), (first, units)):
            label = INPUT if name == INPUT else f"{name}[{start}:{stop}]"
            pieces.append(self.new(label, stop - start, free=free)[0])
        self._replace(variable, tuple(pieces))
        return (pieces[0][0], block), (pieces[1][0], block)

    def _replace(self, variable: int, word: Word) -> None:
        """From now on a variable stands for others, which are what it was."""
        self._stands_for[variable] = word
        for other in (v for v, _ in word if v is not None):
            for some in (self._joint, self._frozen):
                if variable in some:
                    some.add(other)
            if variable not in self._free:
                self._free.discard(other)
            if variable not in self._inputs | self._loose:
                self._inputs.discard(other)


def committed(variables: Variables, labels: RawLabels) -> Labels:
    """Dimensions cut from one: the units are those of the outermost, in blocks of all others."""
    return tuple(_commit(variables, label) for label in labels)


def _commit(variables: Variables, label: RawLabel) -> Label:
    if not isinstance(label, Factor):
        return variables.simple(label)
    sizes = label.group.sizes
    outermost = next((place for place, size in enumerate(sizes) if size > 1), 0)
    if label.place != outermost:
        return None
    return variables.simple(variables.coarsen(label.group.word, prod(sizes[outermost + 1 :])))


def selected(variables: Variables, labels: RawLabels, dimension: int, index: int) -> RawLabels:
    """Labels where one entry of a dimension was taken, and the dimension is gone."""
    label = labels[dimension]
    rest = [other for place, other in enumerate(labels) if place != dimension]
    if isinstance(label, Factor) and label.place == 0:
        inner = label.group.sizes[1:]
        word = variables.cut(label.group.word, index * prod(inner), (index + 1) * prod(inner))
        group = CutDimension(word or (), inner)

        def follow(other: RawLabel) -> RawLabel:
            if not isinstance(other, Factor) or other.group is not label.group or word is None:
                in_group = isinstance(other, Factor) and other.group is label.group
                return None if in_group else other
            return word if len(inner) == 1 else Factor(group, other.place - 1)

        return tuple(follow(other) for other in rest)
    if variables.without_input(_commit(variables, label)) is not None:
        raise UnreadableError("it takes single units")
    variables.join(_commit(variables, label))
    return tuple(rest)


def reshaped(
    variables: Variables, labels: RawLabels, before: Sequence[int], after: Sequence[int]
) -> RawLabels:
    """Labels after a reshape: dimensions merge into blocks, and blocks come apart again."""
    result: list[RawLabel] = [None] * len(after)
    for inner, outer in _groups(before, after):
        real = [d for d in inner if before[d] > 1]
        places = [d for d in outer if after[d] > 1]
        if len(real) == 1 and len(places) == 1:
            result[places[0]] = labels[real[0]]
            continue
        word = _merge(variables, [labels[d] for d in inner], [before[d] for d in inner])
        if word is None:
            continue
        if len(places) < 2:
            result[places[0] if places else outer[0]] = word
            continue
        group = CutDimension(word, tuple(after[d] for d in places))
        for place, d in enumerate(places):
            result[d] = Factor(group, place)
    return tuple(result)


def _merge(variables: Variables, labels: list[RawLabel], sizes: list[int]) -> Label:
    """One label for several dimensions made one."""
    pairs = [(x, size) for x, size in zip(labels, sizes, strict=True) if size > 1]
    if not pairs:
        return next((x for x in labels if x is not None and not isinstance(x, Factor)), None)
    first = pairs[0][0]
    if isinstance(first, Factor) and len(pairs) == len(first.group.sizes):
        wanted = [Factor(first.group, place) for place in range(len(pairs))]
        if [label for label, _ in pairs] == wanted:
            return first.group.word
    words = [(_commit(variables, label), size) for label, size in pairs]
    if len(words) == 1:
        return words[0][0]
    raw = [variables.is_input(word) for word, _ in words]
    if all(raw):
        return variables.new(INPUT, prod(size for _, size in words))[:]
    kept = [word for word, _ in words]
    if sum(raw) > 1 or any(word and not r for word, r in zip(kept, raw, strict=True)):
        for word in (word for word, r in zip(kept, raw, strict=True) if r):
            variables.join(word)
        kept = [None if r else word for word, r in zip(kept, raw, strict=True)]
    places = [place for place, word in enumerate(kept) if word is not None]
    if len(places) > 1:
        places = [place for place in places if not variables.release(kept[place])]
    if not places:
        return None
    if len(places) > 1:
        raise UnreadableError("it merges two dimensions that both have units")
    repeats = prod(size for _, size in words[: places[0]])
    block = prod(size for _, size in words[places[0] + 1 :])
    if repeats > MOST_REPEATS:
        raise UnreadableError("it interleaves units with other dimensions (flatten channels first)")
    word = kept[places[0]]
    assert word is not None
    return tuple((variable, b * block) for variable, b in variables.expand(word)) * repeats


def _groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The finest pairing of dimensions with equal products; trailing ones join the last group."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) and j < len(after):
        inner, outer = [i], [j]
        left, right = before[i], after[j]
        while left != right:
            if left < right:
                i += 1
                inner.append(i)
                left *= before[i]
            else:
                j += 1
                outer.append(j)
                right *= after[j]
        groups.append((inner, outer))
        i, j = i + 1, j + 1
    if groups:
        groups[-1][0].extend(range(i, len(before)))
        groups[-1][1].extend(range(j, len(after)))
    return groups
