"""A fresh head on the joined network, where the report was asked for one, and its contract."""

from dataclasses import replace

from intarsia.composition import Composition, compose
from intarsia.data import Data, subsample
from intarsia.errors import IntarsiaError
from intarsia.measure import FreshHead, fresh_head
from intarsia.modules import Module
from intarsia.reports.html.elements import facts, paragraph, table
from intarsia.reports.html.words import percent
from intarsia.reports.modules.report_input import TEST_ROWS, ReportInput
from intarsia.reports.modules.sections import ReportContext, section


@section("fresh-head", "A fresh head", order=65, needs_data=True)
def fresh_head_section(context: ReportContext) -> str | None:
    """What a new readout recovers of the joined network; left out unless it is asked for."""
    inputs = context.inputs
    if not inputs.probe:
        return None
    try:
        merged = _merged(inputs)
        result = fresh_head(merged, _data(inputs), joint=_joint(inputs) or None)
    except IntarsiaError as error:
        return paragraph(f"No fresh head can be trained here: {error}")
    how = merged.operator if isinstance(merged, Composition) else "as it is"
    return probe_body(result, str(how))


def probe_body(result: FreshHead, how: str = "") -> str:
    """The numbers of a probe with the contract below them, as HTML."""
    rows = [
        [name, score.mean if score else None, score.sd if score else None, score.n if score else 0]
        for name, score in result.rows()
    ]
    joined = f" ({how})" if how else ""
    text = (
        f"With its own last layer the network{joined} is right on {percent(result.native.mean)} of "
        f"{result.samples['test']:,} test samples; with a new one, trained on "
        f"{result.samples['train']:,} samples of all classes above the same frozen features, on "
        f"{percent(result.fresh.mean)}."
    )
    text += f" {result.doubt}" if result.doubt else ""
    shown = table(["", "accuracy", "sd", "n"], rows, "Native, fresh and joint accuracy")
    return "\n".join([paragraph(text), shown, facts(dict(result.contract.labelled()))])


def _merged(inputs: ReportInput) -> Module | Composition:
    """The composition where it is one network, else the weights of its parts added."""
    if inputs.merged is not None and not inputs.merged.apart:
        return inputs.merged
    if len(inputs.together) == 1:
        return inputs.together[0]
    samples = None if inputs.data is None else inputs.data.validation
    return compose(inputs.together, "sum", samples=samples or None)


def _data(inputs: ReportInput) -> Data:
    """What a page has time for: as many rows to train on as it has test samples at most."""
    assert inputs.data is not None
    return replace(inputs.data, train=subsample(inputs.data.train, TEST_ROWS), test=inputs.test)


def _joint(inputs: ReportInput) -> list[Module]:
    """Networks to compare with that were trained on all classes together."""
    modules = [one for one in inputs.compared.values() if isinstance(one, Module)]
    return [module for module in modules if set(module.rewarded) == set(module.catalogue)]
