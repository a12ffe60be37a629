"""What joining takes of memory, counted from shapes before anything is made."""

from intarsia.composition.merge_context import MergeContext
from intarsia.composition.operators.inlay import inlay_size
from intarsia.composition.operators.inlay_network import runs_in_blocks
from intarsia.composition.operators.registry import Operator
from intarsia.limits import account, current, machine_memory
from intarsia.models.axes import axis_sizes, hidden_axes

ROOM = 16  # bytes that joining may take for each byte of modules that lie in memory already
CHANGES = 8  # as many more where changes of a base are joined, in float64
COPIES = 4  # of the parts' tensors, by an operator that does not say


def count_merge(
    context: MergeContext, how: Operator, align: str | None, whole: bool = False
) -> None:
    """Refuse to join parts where that takes more than the limits allow.

    What stays is the network that is joined, or those of the parts; passing is what the operator
    takes, what finds the union of the masks, and the copies that a module makes of its tensors.
    Parts that are not being read, since they are in memory already, give room by their size;
    whoever has samples as well may use half of the machine, which Gram matrices can take. What runs
    in blocks takes no more than its parts, until the state of the `whole` is asked for.
    """
    parts, first = context.parts, context.parts[0].nbytes
    current().check("parts", len(parts), "{} modules are to be joined")
    stays = context.nbytes
    passing = how.memory(context) if how.memory else _usual_bytes(context, how)
    if align is not None and len(parts) > 1:
        passing += context.nbytes + _alignment_bytes(context)
    if how.on == "weights":
        stays, passing = 2 * first, passing + context.nbytes + 2 * first
        if context.base is not None:  # changes in float64, and the base with the joined one
            passing += 2 * context.nbytes + 4 * context.base.nbytes
    elif how.on == "units" and (whole or not (how.blocks and runs_in_blocks(context))):
        entries = inlay_size(context)
        # four bytes and one of mask for each, in the module and in what it is made of; the network
        stays, passing = 9 * entries, passing + 7 * entries
    with account() as taken:
        if not taken.room:
            machine = machine_memory() // 2 if how.samples else 0
            room = ROOM if context.base is None else ROOM + CHANGES
            taken.room = max(room * context.nbytes, machine)
        taken.take(f"joining {len(parts)} modules takes {{}} of memory", stays, passing)


def _usual_bytes(context: MergeContext, how: Operator) -> int:
    """What an operator takes that does not say; on logits, every part keeps its own network."""
    return 0 if how.on == "logits" else COPIES * context.nbytes


def _alignment_bytes(context: MergeContext) -> int:
    """To match the units of two parts: tables of units, and both states in float64."""
    wiring = context.wiring_for("aligning", "moves")
    sizes = axis_sizes(wiring, context.parts[0].state)
    widths = [sizes[axis] for axis in hidden_axes(wiring)]
    widest = max(widths, default=0)
    current().check("units", widest, "a layer of {} units is to be aligned")
    tables = len(context.parts) * sum(width**2 for width in widths) + 3 * widest**2
    return 8 * tables + 8 * context.parts[0].nbytes
