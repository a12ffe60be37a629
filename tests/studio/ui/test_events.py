"""A picture or a text given to the page as it is served: read, answered, deleted, or refused."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
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
from intarsia.studio.server import application
from intarsia.studio.studio_limits import StudioLimits
from tiny_encoder import pictures

# It takes seconds to import, also where another worker runs these tests.
pytestmark = pytest.mark.skipif(find_spec("gradio") is None, reason="needs gradio")
httpx = pytest.importorskip("httpx")
Image = pytest.importorskip("PIL.Image")


class Page:
    """One visitor's page, without a browser."""

    def __init__(self, app: Any, runner: asyncio.Runner) -> None:
        self.app, self.runner, self.cookies = app, runner, httpx.Cookies()
        text = self.ask("GET", "/").text
        found = re.search(r"window\.gradio_config = (.*?);</script>", text, re.S)
        assert found is not None
        self.config = json.loads(found[1])
        self.parts = {part["id"]: part["props"] for part in self.config["components"]}
        self.names = {props.get("elem_id"): key for key, props in self.parts.items()}

    def ask(self, method: str, path: str, **given: Any) -> Any:
        async def asking() -> Any:
            transport, base = httpx.ASGITransport(self.app), "http://127.0.0.1:7878"
            how = {"transport": transport, "base_url": base, "cookies": self.cookies}
            async with httpx.AsyncClient(**how) as client:
                answer = await client.request(method, path, **given)
                self.cookies = client.cookies
                return answer

        return self.runner.run(asking())

    def upload(self, content: bytes, name: str = "mine.png") -> dict[str, Any]:
        answer = self.ask("POST", "/gradio_api/upload", files={"files": (name, content)})
        return {"path": answer.json()[0], "meta": {"_type": "gradio.FileData"}}

    def post(self, name: str, event: str, **values: Any) -> Any:
        target = [self.names[name], event]
        function = next(f for f in self.config["dependencies"] if target in f["targets"])
        given = {self.names[key.replace("_", "-")]: value for key, value in values.items()}
        data = [given.get(key, self.parts[key].get("value")) for key in function["inputs"]]
        body = {"data": data, "fn_index": function["id"], "session_hash": "page"}
        answer = self.ask("POST", "/gradio_api/run/predict", json=body)
        if answer.status_code != 200:
            return answer.status_code
        places = [self.parts[key].get("elem_id") for key in function["outputs"]]
        return dict(zip(places, answer.json()["data"], strict=True))


def png(pixels: np.ndarray) -> bytes:
    content = BytesIO()
    Image.fromarray(pixels.transpose(1, 2, 0)).save(content, "PNG")
    return content.getvalue()


@pytest.fixture
def served() -> Iterator[Any]:
    """`served(session, **limits)` is a page of it; where no loop runs, Gradio would leave some."""
    with asyncio.Runner() as runner, ExitStack() as stack:

        async def opening(session: Session, limits: StudioLimits) -> Any:
            return stack.enter_context(application(session, "test", limits=limits))

        yield lambda session, **limits: Page(
            runner.run(opening(session, StudioLimits(**limits))), runner
        )


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
