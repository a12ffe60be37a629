"""Axes not yet named, while a network is being read: labels that unify as its layers meet."""

from math import prod

from intarsia.errors import WiringError
from intarsia.models.axes import INPUT, OUTPUT, Axis

# a variable and how many consecutive entries make one of its units
Label = tuple[int, int]
Labels = tuple[Label | None, ...]


class UnreadableError(WiringError):
    """The reason alone; the reader adds which layer."""


class Variables:
    """Union-find over axes, where a joined axis may be a finer division of its parent."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._parents: list[Label] = []
        self._inputs: set[int] = set()
        self._free: set[int] = set()
        self._joint: set[int] = set()
        self._frozen: set[int] = set()
        self._joint_input = False

    def new(self, name: str, *, free: bool = False) -> Label:
        """A new axis; a free one belongs to a bare parameter and may turn out not to be units."""
        variable = len(self._names)
        self._names.append(name)
        self._parents.append((variable, 1))
        if name == INPUT:
            self._inputs.add(variable)
        if free:
            self._free.add(variable)
        return variable, 1

    def find(self, label: Label) -> Label:
        variable, block = label
        while self._parents[variable][0] != variable:
            parent, factor = self._parents[variable]
            variable, block = parent, block * factor
        return variable, block

    def unify(self, one: Label, other: Label) -> None:
        """From now on both are the same units; the finer one follows the coarser."""
        one, other = self.find(one), self.find(other)
        if one[1] > other[1]:
            one, other = other, one
        if one == other:
            return
        if one[0] == other[0] or other[1] % one[1]:
            raise UnreadableError(f"it joins units of {one[1]} entries with units of {other[1]}")
        self._parents[one[0]] = (other[0], other[1] // one[1])
        for some in (self._joint, self._frozen):
            if one[0] in some:
                some.add(other[0])
        for every in (self._inputs, self._free):
            if one[0] not in every:
                every.discard(other[0])

    def coarsen(self, label: Label, block: int) -> Label:
        """The label of units of `block` entries, made by merging smaller ones where needed."""
        variable, now = self.find(label)
        if now % block == 0:
            return variable, now // block
        if block % now:
            raise UnreadableError(f"it cuts units of {now} entries into pieces of {block}")
        parent = self.new(self._names[variable])
        self.unify((variable, now), (parent[0], block))
        return parent

    def join(self, label: Label | None) -> None:
        """The units meet outside the weights, so none can be left out alone."""
        if self.is_input(label):
            self._joint_input = True
        elif label is not None:
            self._joint.add(self.find(label)[0])

    def is_input(self, label: Label | None) -> bool:
        """Whether this is the raw input and no layer's units."""
        return label is not None and self.find(label)[0] in self._inputs

    def freeze(self, label: Label) -> bool:
        """Say that a bare parameter's dimension has no units; False if it is some layer's axis."""
        root = self.find(label)[0]
        if root in self._free:
            self._frozen.add(root)
        return root in self._free

    def name_all(self, entries: dict[int, Labels]) -> dict[int, tuple[Axis | None, ...]]:
        """Final axes: the output's name goes before the input's, then the first layer's."""
        roots = [self.find((variable, 1))[0] for variable in range(len(self._names))]
        members: dict[int, list[int]] = {}
        for variable, root in enumerate(roots):
            members.setdefault(root, []).append(variable)
        names = {root: self._choose(variables) for root, variables in members.items()}
        read = {self.find(x)[0] for labels in entries.values() for x in labels if x is not None}
        if sum(names[root] == INPUT for root in read) > 1:
            raise UnreadableError(
                "the network reads its input in two ways, such as pixels and channels"
            )

        def axis(label: Label | None) -> Axis | None:
            if label is None:
                return None
            root, block = self.find(label)
            if root in self._frozen:
                return None
            joint = root in self._joint or (self._joint_input and names[root] == INPUT)
            return Axis(names[root], block, joint)

        return {key: tuple(axis(label) for label in labels) for key, labels in entries.items()}

    def _choose(self, variables: list[int]) -> str:
        names = [self._names[variable] for variable in variables]
        return next((n for n in (OUTPUT, INPUT) if n in names), names[0])


def reshaped(
    variables: Variables, labels: Labels, before: tuple[int, ...], after: tuple[int, ...]
) -> Labels:
    """Labels after a reshape: dimensions merge into blocks, and blocks come apart again."""
    reshaped_labels: list[Label | None] = [None] * len(after)
    for inner, outer in _groups(before, after):
        label = _merge(variables, [labels[d] for d in inner], [before[d] for d in inner])
        place = next((d for d in outer if after[d] > 1), outer[0])
        rest = prod(after[d] for d in outer if d > place)
        reshaped_labels[place] = variables.coarsen(label, rest) if label and rest > 1 else label
    return tuple(reshaped_labels)


def _merge(variables: Variables, labels: list[Label | None], sizes: list[int]) -> Label | None:
    """One label for several dimensions made one: units must be the slowest of them."""
    if len(labels) == 1:
        return labels[0]
    raw = [variables.is_input(label) for label in labels]
    if any(raw) and all(
        r or (label is None and size == 1)
        for r, label, size in zip(raw, labels, sizes, strict=True)
    ):
        return variables.new(INPUT)
    if sum(raw) > 1 or any(label and not r for label, r in zip(labels, raw, strict=True)):
        for label in (label for label, r in zip(labels, raw, strict=True) if r):
            variables.join(label)
        labels = [None if r else label for label, r in zip(labels, raw, strict=True)]
    places = [place for place, label in enumerate(labels) if label is not None]
    if not places:
        return None
    label = labels[places[0]]
    if label is None or len(places) > 1 or prod(sizes[: places[0]]) > 1:
        raise UnreadableError("it interleaves units with other dimensions (flatten channels first)")
    return label[0], label[1] * prod(sizes[places[0] + 1 :])


def _groups(before: tuple[int, ...], after: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
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
    groups[-1][0].extend(range(i, len(before)))
    groups[-1][1].extend(range(j, len(after)))
    return groups
