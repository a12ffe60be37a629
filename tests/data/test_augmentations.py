"""Augmentations: what each does to a picture, and that training draws them as promised."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import intarsia as ia
from intarsia.data.augmentations import augmented, draw_numbers, read_augmentations
from intarsia.errors import RecipeError
from intarsia.training.engines.base import Engine, Start
from intarsia.training.engines.plain import PlainEngine
from intarsia.training.engines.stack import StackEngine
from intarsia.training.job import Job, device_of
from intarsia.training.plan import TrainingPlan

SETTINGS = {"model": "lenet", "epochs": 2, "sparsity": 0, "batch": 16, "progress": False}


def apply(text: str, pictures: Tensor, random: list[list[float]]) -> Tensor:
    return augmented(pictures, read_augmentations(text), torch.tensor(random))


@pytest.fixture
def pictures() -> Tensor:
    return 1 + torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5)


def test_a_crop_moves_a_picture_and_fills_with_zeros(pictures: Tensor) -> None:
    still = apply("crop(1)", pictures, [[0.5, 0.5], [0.5, 0.5]])
    assert torch.equal(still, pictures)
    moved = apply("crop(1)", pictures, [[0.0, 0.5], [0.999, 0.999]])
    expected = torch.zeros_like(pictures)
    expected[0, :, 1:] = pictures[0, :, :-1]  # one row of zeros comes in above
    expected[1, :, :-1, :-1] = pictures[1, :, 1:, 1:]
    assert torch.equal(moved, expected)


def test_a_flip_mirrors_left_for_right(pictures: Tensor) -> None:
    flipped = apply("flip", pictures, [[0.4], [0.6]])
    assert torch.equal(flipped[0], pictures[0].flip(2))
    assert torch.equal(flipped[1], pictures[1])


def test_a_cutout_covers_a_square(pictures: Tensor) -> None:
    covered = apply("cutout(2)", pictures, [[0.6, 0.5], [0.0, 0.0]])
    expected = pictures.clone()
    expected[0, :, 1:3, 1:3] = 0  # its middle at row 2 and column 2
    expected[1, :, :1, :1] = 0  # and partly outside
    assert torch.equal(covered, expected)


def test_steps_follow_one_another_with_numbers_of_their_own(pictures: Tensor) -> None:
    both = apply("flip + crop(1)", pictures, [[0.4, 0.0, 0.5], [0.6, 0.5, 0.5]])
    first = apply("crop(1)", pictures[:1].flip(3), [[0.0, 0.5]])
    assert torch.equal(both, torch.cat([first, pictures[1:]]))


def test_steps_are_written_with_plus_signs_or_commas() -> None:
    """What lies in brackets is left whole, and one text is kept of both."""
    steps = read_augmentations("crop(4) + flip + cutout(pixels=+8)")
    assert [str(step) for step in steps] == ["crop(pixels=4)", "flip", "cutout(pixels=8)"]
    assert read_augmentations("crop(4), flip, cutout(8)") == steps
    recipe = ia.Recipe(augment="crop(4), flip").resolve()
    assert recipe.digest() == ia.Recipe(augment="crop(4) + flip").resolve().digest()


def test_every_offset_is_as_frequent_as_any_other() -> None:
    numbers = draw_numbers(read_augmentations("crop(2)"), 5000, 0)
    rows, columns = 5 + torch.arange(5000), torch.zeros(5000, 1, 5, 5)
    columns[:, 0, 2, 2] = rows
    moved = augmented(columns, read_augmentations("crop(2)"), numbers)
    counts = torch.bincount(moved.flatten(1).argmax(1), minlength=25)
    assert bool((counts > 0).all())
    assert int(counts.max()) < 1.5 * int(counts.min())


@pytest.mark.parametrize(
    ("augment", "words"),
    [
        ("crop(9)", "crop has pixels 9: expected a whole number from 1 to 7"),
        ("cutout(0)", "cutout has pixels 0"),
        ("spin", "unknown augmentation 'spin'"),
        (3, "augment is 3: expected one or more, as in crop"),
    ],
)
def test_what_cannot_be_done_is_refused(augment: object, words: str) -> None:
    data = ia.load_data(np.zeros((60, 8, 8), np.uint8), np.arange(60) % 3)
    with pytest.raises(RecipeError, match=words):
        ia.train(data, **SETTINGS, augment=augment)


def test_tables_are_no_pictures() -> None:
    data = ia.load_data(np.random.default_rng(0).normal(size=(60, 8)), np.arange(60) % 3)
    with pytest.raises(RecipeError, match="it changes pictures, channels x height x width"):
        ia.train(data, model="mlp(8)", epochs=1, augment="flip", progress=False)


def test_a_step_that_changes_the_shape_is_refused() -> None:
    @ia.AUGMENTATIONS.register("half", numbers=0)
    def half(pictures: Tensor, random: Tensor) -> Tensor:
        return pictures[:, :, ::2]

    data = ia.load_data(np.zeros((60, 8, 8), np.uint8), np.arange(60) % 3)
    with pytest.raises(RecipeError, match=r"half makes \(1, 4, 8\) of pictures \(1, 8, 8\)"):
        ia.train(data, **SETTINGS, augment="half")


@pytest.fixture(scope="module")
def digits() -> ia.Data:
    data = ia.load_data("digits", classes=["0", "1", "2"])
    return ia.load_data(data.train.x[:80].reshape(-1, 1, 8, 8), data.train.y[:80])


def trained(data: ia.Data, engine: Callable[[Job], Engine], **settings: object) -> list[Tensor]:
    given = {**SETTINGS, "negatives": "noise(0.25)", "silent": False, **settings}
    given.pop("progress")
    plan = TrainingPlan.of(data, None, None, given, None)
    job = Job.of(plan, device_of("cpu"))
    engine_ = engine(job)
    engine_.begin([Start(dict(plan.origins[task.seed][1])) for task in plan.tasks])
    engine_.epoch(0, 1, [1e-3] * len(plan.tasks), [True] * len(plan.tasks))
    return [
        torch.cat([value.detach().flatten() for value in slot.parameters.values()])
        for slot in engine_.slots
    ]


@pytest.mark.usefixtures("one_thread")
def test_all_engines_see_the_same_pictures(digits: ia.Data) -> None:
    by_book = trained(digits, PlainEngine, augment="crop(1) + flip")
    plainly = trained(digits, PlainEngine)
    for engine in (lambda job: StackEngine(job, 1), lambda job: StackEngine(job, 3)):
        for k, own in enumerate(trained(digits, engine, augment="crop(1) + flip")):
            torch.testing.assert_close(own, by_book[k], rtol=1e-3, atol=1e-5)
            assert float((plainly[k] - by_book[k]).abs().max()) > 1e-3


@pytest.mark.usefixtures("one_thread")
def test_a_module_sees_the_same_alone_and_in_a_bank(digits: ia.Data) -> None:
    settings = {**SETTINGS, "augment": "crop(1) + flip", "engine": "single"}
    bank = ia.train(digits, **settings)
    alone = ia.train(digits, **settings, partition=[[bank[1].rewarded[0]]])
    for name, tensor in alone[0].state.items():
        assert torch.equal(tensor, bank[1].state[name])
    assert bank[1].provenance["recipe"]["augment"] == "crop(pixels=1) + flip"
    assert alone[0].provenance["engine"] == "single"


def test_auto_takes_an_engine_that_can(digits: ia.Data) -> None:
    bank = ia.train(digits, model="mlp(8)", epochs=1, augment="flip", progress=False)
    assert bank[0].provenance["engine"] in ("single", "stack")
    with pytest.raises(RecipeError, match="'mlp' trains on rows as they are"):
        ia.train(digits, model="mlp(8)", epochs=1, augment="flip", engine="mlp", progress=False)


def test_pictures_change_from_epoch_to_epoch_and_from_seed_to_seed() -> None:
    steps = read_augmentations("crop(4)")
    first = draw_numbers(steps, 100, 0, 0, 0)
    assert torch.equal(first, draw_numbers(steps, 100, 0, 0, 0))
    assert not torch.equal(first, draw_numbers(steps, 100, 0, 0, 1))
    assert not torch.equal(first, draw_numbers(steps, 100, 1, 0, 0))
