"""The identification contract of a probe: the one text that every form of its result carries."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Contract:
    """What a probe holds fixed, what it changes, what that identifies, and what it does not."""

    held_fixed: str
    changed: str
    identified: str
    not_identified: str

    def labelled(self) -> Mapping[str, str]:
        """The four statements by the words that head them."""
        return {
            "Held fixed": self.held_fixed,
            "Changed": self.changed,
            "Identified": self.identified,
            "Not identified": self.not_identified,
        }

    def to_json(self) -> dict[str, str]:
        return asdict(self)

    def markdown(self) -> str:
        """A list for pages, one statement per item."""
        return "\n".join(f"- **{label}.** {text}" for label, text in self.labelled().items())

    def __str__(self) -> str:
        return "\n".join(f"{label}: {text}" for label, text in self.labelled().items())


FRESH_HEAD = Contract(
    held_fixed=(
        "Every weight and statistic of the network below its last linear layer, in evaluation "
        "mode; the data and its splits."
    ),
    changed=(
        "The last linear layer alone: a new one is trained on labelled training samples of all "
        "classes, and its best epoch on validation samples is tested."
    ),
    identified=(
        "How much of the shortfall a linear readout of these features recovers: fresh - native, "
        "and (fresh - native) / (joint - native) where a joint reference is given."
    ),
    not_identified=(
        "That the features are undamaged, where the rest of the shortfall comes from, or how good "
        "the merged network is: the new layer has seen labels of all classes together, which no "
        "merge has. It explains a score and is not a network to ship."
    ),
)
"""The contract of `fresh_head`."""


def states(contract: Contract) -> Callable[[Function], Function]:
    """Puts the contract at the end of a function's or a class's docstring."""

    def extend(function: Function) -> Function:
        if function.__doc__ is not None:  # python -OO has none
            lines = str(contract).replace("\n", "\n\n    ")
            function.__doc__ = f"{function.__doc__.rstrip()}\n\n    {lines}\n    "
        return function

    return extend
