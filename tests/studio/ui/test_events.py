"""A picture or a text given to the page as it is served: read, answered, deleted, or refused."""

from dataclasses import replace
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import intarsia as ia
from intarsia.encoders import Encoder
from intarsia.studio import Session
from served_page import Page
from tiny_encoder import pictures

# It takes seconds to import, also where another worker runs these tests.
pytestmark = pytest.mark.skipif(find_spec("gradio") is None, reason="needs gradio")
pytest.importorskip("httpx")
Image = pytest.importorskip("PIL.Image")


def png(pixels: np.ndarray) -> bytes:
    content = BytesIO()
    Image.fromarray(pixels.transpose(1, 2, 0)).save(content, "PNG")
    return content.getvalue()


def test_a_picture_is_answered_and_switched_without_being_encoded_again(
    feature_session: Session, served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    encode = Encoder.__call__
    monkeypatch.setattr(Encoder, "__call__", lambda *given: calls.append(1) or encode(*given))
    page = served(feature_session, picture_pixels=30)
    pixels = pictures(2)[0][1]
    file = page.upload(png(pixels))
    assert Path(file["path"]).exists()
    result = page.post("sample-picture", "upload", sample_picture=file)
    assert not Path(file["path"]).exists()
    share = float(ia.compose(feature_session.modules, "inlay").predict_proba(pixels[None]).max())
    calls.clear()
    assert f"{share:.3f}" in result["joined-answer"]
    assert "Shown: your picture" in result["sample-seen"]
    assert "5 by 6 pixels" in result["sample-seen"]
    assert result["sample-picture"] is None
    names = list(feature_session.names)
    less = page.post("module-tiles", "change", module_tiles=names[:1])
    assert "Shown: your picture" in less["sample-seen"]
    assert less["module-answers"].count("class='answer off'") == 2
    assert less["joined-answer"] != result["joined-answer"]
    again = page.post("module-tiles", "change", module_tiles=names)
    assert again["joined-answer"] == result["joined-answer"]
    assert calls == []

    for content in (b"a sentence", png(np.zeros((3, 9, 9), np.uint8))):
        bad = page.upload(content)
        refused = page.post("sample-picture", "upload", sample_picture=bad)
        assert "mine.png: " in refused["message"]
        assert "class='bad'" in refused["message"]
        assert not Path(bad["path"]).exists()
    assert calls == []
    kept = page.post("module-tiles", "change", module_tiles=names)
    assert kept["sample-seen"] == result["sample-seen"]  # what was refused changed nothing
    assert page.post("sample-picture", "upload", sample_picture=file) == 400  # it was read before
    assert "did not arrive" in page.post("sample-picture", "upload")["message"]
    stranger = Page(page.app, page.runner)
    mine = page.upload(png(pixels))
    assert stranger.post("sample-picture", "upload", sample_picture=mine) == 400
    chosen = page.post("sample-number", "change", sample_number=3)
    assert "Shown: test sample 3" in chosen["sample-seen"]


class TextEncoder(Encoder):
    """A stand-in for an encoder that reads texts: how often letters occur."""

    reads_texts = True

    def tokens(self, texts: list[str]) -> Tensor:
        return torch.tensor([[text.count(letter) for letter in "abcdefg"] for text in texts])

    def __call__(self, x: Tensor, device: Any = "cpu") -> Tensor:
        return x.to(torch.float32)


def test_a_text_is_answered_where_the_encoder_reads_texts(
    feature_session: Session, served: Any
) -> None:
    encoder = feature_session.modules[0].encoder
    assert encoder is not None
    texts = TextEncoder(encoder.name, None, "", (), 7, encoder.probe, len)
    modules = [replace(module, encoder=texts) for module in feature_session.modules]
    page = served(Session(modules, replace(feature_session.data, encoder=None)), text_characters=20)
    assert "sample-picture" not in page.names
    result = page.post("sample-text", "submit", sample_text="a <b>dead</b> bee")
    assert "<blockquote>a &lt;b&gt;dead&lt;/b&gt; bee</blockquote>" in result["sample-seen"]
    counts = torch.tensor([[2.0, 3.0, 0, 2, 3, 0, 0]])
    share = float(ia.compose(modules, "inlay").predict_proba(counts).max())
    assert f"{share:.3f}" in result["joined-answer"]
    assert page.post("sample-text-send", "click", sample_text="")["message"].count("is empty") == 1
    long = page.post("sample-text-send", "click", sample_text="x" * 21)
    assert "has 21 characters, the limit is 20" in long["message"]


def test_a_missing_encoder_is_named_and_all_else_works(
    feature_session: Session, served: Any
) -> None:
    encoder = feature_session.modules[0].encoder
    assert encoder is not None
    bare = replace(encoder, network=None)
    modules = [replace(module, encoder=bare) for module in feature_session.modules]
    page = served(Session(modules, feature_session.data))
    assert "sample-picture" not in page.names
    note = page.parts[page.names["no-encoder"]]["value"]
    assert "&#x27;TinyEncoder&#x27;, a network or function of your own" in note
    result = page.post("sample-number", "change", sample_number=1)
    assert "7 features of custom TinyEncoder" in result["sample-seen"]
    assert "<img" not in result["sample-seen"]
    assert result["module-answers"].count("class='answer'") == 3
    assert "3 modules" in page.post("module-tiles", "change")["confusion"]
