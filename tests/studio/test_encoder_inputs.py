"""Pictures and texts of visitors: the pixels that training would have read, or a refusal."""

import struct
import zlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import intarsia as ia
from benchmarks.small_data import zipped
from intarsia.data.sources.image_folders import from_folder
from intarsia.encoders import ENCODERS, Encoder
from intarsia.errors import DataError, FileError, IntarsiaError, ModelError
from intarsia.studio import Session
from intarsia.studio.answers import Sample, merged_answer
from intarsia.studio.encoder_inputs import FORMATS, InputReader, read_picture
from intarsia.studio.web.studio_limits import StudioLimits
from tiny_encoder import SHAPE, TinyEncoder, pictures

Image = pytest.importorskip("PIL.Image")
LIMITS = StudioLimits()
PIXELS = pictures(1)[0][0]  # 3 x 6 x 5


def saved(folder: Path, image: Any, name: str = "mine.png", **how: Any) -> Path:
    image.save(folder / name, **how)
    return folder / name


def colours(factor: int = 1) -> Any:
    image = Image.fromarray(PIXELS.transpose(1, 2, 0))
    return image.resize((5 * factor, 6 * factor), Image.Resampling.NEAREST)


def png(width: int, height: int) -> bytes:
    """A file that says in its header how large its picture is, and holds next to nothing of it."""
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))]
    parts += [(b"IDAT", zlib.compress(b"\0" * 9)), (b"IEND", b"")]
    sealed = [
        struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(sealed)


def test_a_picture_is_answered_as_its_pixels_are(feature_session: Session, tmp_path: Path) -> None:
    reader = InputReader.of(feature_session.modules)
    assert reader is not None
    assert (reader.kind, reader.missing()) == ("picture", "")
    pixels = read_picture(saved(tmp_path, colours()), SHAPE, LIMITS)
    assert torch.equal(pixels, torch.tensor(PIXELS))
    given = reader.picture(pixels)
    whole = ia.compose(feature_session.modules, "logits")
    answer = merged_answer(feature_session, Sample(given.features), feature_session.names, "logits")
    expected = whole.predict_proba(PIXELS[None])[0].numpy()
    np.testing.assert_allclose(answer.probabilities, expected, atol=1e-6)
    assert given.pixels is not None
    assert torch.equal(given.pixels[0], pixels)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L", "LA", "1"])
@pytest.mark.parametrize("factor", [1, 7])
def test_modes_and_sizes_are_those_of_folders_of_images(
    mode: str, factor: int, tmp_path: Path
) -> None:
    image = colours(factor).convert(mode)
    if mode in ("RGBA", "LA"):
        image.putalpha(9)
    (tmp_path / "class").mkdir()
    path = saved(tmp_path / "class", image)
    expected = np.asarray(from_folder(tmp_path, (6, 5)).x)[0]
    assert np.array_equal(read_picture(path, SHAPE, LIMITS), np.broadcast_to(expected, SHAPE))


def test_a_grey_encoder_gets_a_colour_picture_in_grey(tmp_path: Path) -> None:
    pixels = read_picture(saved(tmp_path, colours()), (1, 6, 5), LIMITS)
    assert np.array_equal(pixels[0], np.asarray(colours().convert("L")))


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_that_is_named_is_read(kind: str, tmp_path: Path) -> None:
    path = saved(tmp_path, colours(), f"mine{FORMATS[kind][0]}", format=kind)
    assert read_picture(path, SHAPE, LIMITS).shape == SHAPE


NO_PICTURES = {
    "a broken end": (png(6, 5)[:-20], "is not a picture|cannot be read as a picture"),
    "a broken header": (png(6, 5)[:30], "is not a picture|cannot be read as a picture"),
    "too few pixels": (png(6, 5), "cannot be read as a picture: .*truncated"),
    "many pixels": (png(6000, 5000), r"has 6,000 x 5,000 pixels, the limit is 25,000,000"),
    "more than Pillow takes": (png(2**16, 2**16), "has far more pixels, the limit is 25,000,000"),
    "no pixels": (png(0, 0), "cannot be read as a picture|is not a picture"),
    "a zip": (
        zipped({"a.png": png(2, 2)}),
        "is not a picture: choose one of PNG, JPEG, WEBP, GIF, BMP",
    ),
    "a text": (b"a sentence", "is not a picture"),
    "nothing": (b"", "is not a picture"),
    "a drawing": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "is not a picture"),
    "another format": (b"P6 5 6 255 " + b"0" * 90, "is not a picture"),
    "half a GIF": (b"GIF89a" + b"\xff" * 40, "is not a picture|cannot be read as a picture"),
    "half a BMP": (b"BM" + b"\xff" * 60, "is not a picture|cannot be read as a picture|pixels"),
}


@pytest.mark.parametrize(("content", "words"), NO_PICTURES.values(), ids=NO_PICTURES)
def test_what_is_no_picture_is_refused_without_its_path(
    content: bytes, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.png"
    path.write_bytes(content)
    with pytest.raises(IntarsiaError, match=f"^mine.png: .*({words})") as error:
        read_picture(path, SHAPE, LIMITS)
    assert str(tmp_path) not in str(error.value)


def test_bytes_and_pixels_are_counted_before_any_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unpacked(*given: Any) -> None:
        raise AssertionError("it was unpacked")

    path = saved(tmp_path, colours(7))
    monkeypatch.setattr("intarsia.studio.encoder_inputs.pixels_of", unpacked)
    for limits, words in (
        ({"picture_pixels": 35 * 42 - 1}, "has 35 x 42 pixels"),
        ({"picture_bytes": path.stat().st_size - 1}, "MB"),
    ):
        with pytest.raises(FileError, match=f"^mine.png: .*{words}"):
            read_picture(path, SHAPE, StudioLimits(**limits))


def test_what_a_reader_says_of_a_path_names_the_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: Any) -> None:
        raise OSError(f"{path}: broken")

    path = saved(tmp_path, colours())
    monkeypatch.setattr("intarsia.studio.encoder_inputs.pixels_of", broken)
    words = "^mine.png: cannot be read as a picture: mine.png: broken$"
    with pytest.raises(FileError, match=words):
        read_picture(path, SHAPE, LIMITS)


def test_more_than_8_bits_are_refused(tmp_path: Path) -> None:
    deep = Image.fromarray(np.full((6, 5), 40_000, np.uint16))
    with pytest.raises(DataError, match=r"^mine.png has more than 8 bits"):
        read_picture(saved(tmp_path, deep), SHAPE, LIMITS)


def test_white_is_what_it_was_in_training() -> None:
    @ENCODERS.register("whiteness")
    def whiteness(white: float = 255.0) -> nn.Module:
        """The mean of each colour."""

        class Whiteness(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return x.mean((2, 3)) / white

        return Whiteness()

    white = torch.full(SHAPE, 255, dtype=torch.uint8)
    for text in ("whiteness", "whiteness(16)"):
        given = InputReader(Encoder.of(text, SHAPE)).picture(white)
        torch.testing.assert_close(given.features, torch.ones(1, 3))


def test_a_missing_encoder_is_named(feature_session: Session) -> None:
    modules = feature_session.modules
    encoder = modules[0].encoder
    assert encoder is not None
    bare = [replace(m, encoder=replace(encoder, network=None)) for m in modules]
    reader = InputReader.of(bare)
    assert reader is not None
    assert "'TinyEncoder', a network or function of your own" in reader.missing()
    both = InputReader.of([*bare, modules[0]])  # a visitor's file, say, does not hold it
    assert both is not None
    assert both.missing() == ""
    with pytest.raises(ModelError, match="TinyEncoder"):
        reader.picture(torch.tensor(PIXELS))

    @ENCODERS.register("unmade", weights="0" * 64, features=7)
    def unmade() -> nn.Module:
        """It needs what is not there."""
        raise ImportError("no module named nowhere")

    words = InputReader(Encoder.of("unmade", SHAPE)).missing()
    assert words == "the encoder unmade cannot be made: ImportError: no module named nowhere"


def test_without_an_encoder_or_for_rows_there_is_nothing_to_read(session: Session) -> None:
    assert InputReader.of(session.modules) is None
    rows = Encoder.of(lambda x: x[:, :2], (4,))
    assert InputReader(rows).kind == "other"


def test_a_failure_of_ones_own_encoder_is_told() -> None:
    encoder = Encoder.of(TinyEncoder(), SHAPE)
    with pytest.raises(ModelError, match=r"custom TinyEncoder fails on this: RuntimeError"):
        InputReader(encoder).picture(torch.zeros(3, 9, 9, dtype=torch.uint8))


def lengths(texts: list[str]) -> Tensor:
    return torch.tensor([[len(text), text.count("?")] for text in texts])


def text_reader(tokens: Any = lengths) -> InputReader:
    """Of a stand-in for an encoder that reads texts, and halves their tokens."""
    made = type("Texts", (SimpleNamespace,), {"__call__": lambda self, rows: rows / 2})
    encoder: Any = made(reads_texts=True, shape=(2,), tokens=tokens)
    return InputReader(encoder)


def test_a_text_gives_features_within_a_limit() -> None:
    reader = text_reader()
    assert reader.kind == "text"
    given = reader.text("Is it so?", LIMITS)
    assert given.features.tolist() == [[4.5, 0.5]]
    assert (given.text, given.pixels) == ("Is it so?", None)
    assert reader.text("x\ud800", LIMITS).text == "x?"
    with pytest.raises(DataError, match="has 11 characters, the limit is 10"):
        reader.text("x" * 11, StudioLimits(text_characters=10))
    nothing: list[Any] = ["", "  \n", None, 3, ["x"]]
    for empty in nothing:
        with pytest.raises(DataError, match="the text is empty"):
            reader.text(empty, LIMITS)
    with pytest.raises(ModelError, match="ZeroDivisionError"):
        text_reader(lambda texts: 1 // 0).text("x", LIMITS)
