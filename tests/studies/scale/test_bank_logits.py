"""Logits of a bank, once: against composing, and against plain loops."""

import torch

import intarsia as ia
from intarsia.modules import logits_of
from intarsia.studies.scale.bank_logits import (
    SplitLogits,
    accuracy,
    calibrated_accuracy,
    growth,
)

CPU = torch.device("cpu")


def test_every_module_answers_as_it_does_alone(bank: ia.Bank, data: ia.Data) -> None:
    logits = SplitLogits.of(bank, data.test, CPU)
    assert logits.each.shape == (4, 60, 4)
    for own, module in zip(logits.each, bank, strict=True):
        torch.testing.assert_close(own, logits_of(module.to_module(), data.test.x))
    merged = ia.compose(bank, "logits")
    right = (merged.predict(data.test.x) == data.test.y).double().mean()
    assert logits.added() == float(right)


def test_accuracy_among_the_classes_present() -> None:
    logits = torch.tensor([[1.0, 2, 9], [3, 1, 2], [0, 1, 5], [1, 7, 0]])
    labels = torch.tensor([1, 0, 2, 0])
    assert accuracy(logits, labels) == 0.5
    # the third sample is of no class present, and the first one's 9 does not count
    assert accuracy(logits, labels, [0, 1]) == 2 / 3
    assert accuracy(logits, labels, [1, 0]) == 2 / 3


def test_growth_is_what_a_loop_over_compositions_finds() -> None:
    """Random logits, so that classes that are absent win as well."""
    draw = torch.Generator().manual_seed(0)
    each = torch.randn(3, 200, 6, generator=draw)
    labels = torch.randint(6, (200,), generator=draw)
    classes = [[4], [0, 2], [5]]
    result = growth(SplitLogits(each, labels), classes)
    assert result.sizes == [1, 3, 4]
    present: list[int] = []
    for step, own in enumerate(classes):
        present += own
        summed = each[: step + 1].sum(0)
        closed, answered, rows = 0, 0, 0
        for row in range(200):
            if int(labels[row]) not in present:
                continue
            rows += 1
            best = max(present, key=lambda c: float(summed[row, c]))
            closed += best == int(labels[row])
            answered += int(summed[row].argmax()) == int(labels[row])
        assert result.closed[step] == closed / rows
        assert result.open[step] == answered / rows
    assert result.closed[0] == 1  # one class alone is always right among itself
    assert result.open[0] < 1


def test_calibrated_logits_are_those_of_compose(bank: ia.Bank, data: ia.Data) -> None:
    test = SplitLogits.of(bank, data.test, CPU)
    merged = ia.compose(bank, "logits", samples=data, calibrate=True)
    expected = (merged.predict(data.test.x) == data.test.y).double().mean()
    assert calibrated_accuracy(bank, data, test, 1000) == float(expected)


def test_answers_may_be_means_over_mirror_images(bank: ia.Bank, data: ia.Data) -> None:
    logits = SplitLogits.of(bank, data.test, CPU, flips=True)
    network = bank[0].to_module()
    mirrored = logits_of(network, data.test.x.flip(3))
    torch.testing.assert_close(
        logits.each[0], (logits_of(network, data.test.x) + mirrored) / 2, rtol=1e-5, atol=1e-6
    )
