"""The judge that asks a model, against a stand-in server on this machine."""

import base64
import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from intarsia.errors import DataError, RecipeError
from intarsia.sweetspot import VisionJudge, judged, load_network


class StandIn(ThreadingHTTPServer):
    """Speaks as much of the protocol as the judge needs, and remembers what it was asked."""

    answers: list[Any]
    asked: list[dict[str, Any]]
    wait: threading.Event | None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append(
            {"path": self.path, "headers": dict(self.headers), "body": json.loads(body)}
        )
        answer = self.server.answers.pop(0)
        if answer == "wait":
            assert self.server.wait is not None
            self.server.wait.wait(10)
            return
        status, content = answer if isinstance(answer, tuple) else (200, _chat(answer))
        self.send_response(status)
        if status in (301, 302, 307):
            self.send_header("Location", content.decode())
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


def _chat(text: Any) -> bytes:
    return json.dumps({"choices": [{"message": {"content": text}}]}).encode()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with StandIn(("127.0.0.1", 0), Handler) as stand_in:
        stand_in.answers, stand_in.asked, stand_in.wait = [], [], threading.Event()
        thread = threading.Thread(target=stand_in.serve_forever, args=(0.01,))
        thread.start()
        yield stand_in
        stand_in.wait.set()
        stand_in.shutdown()
        thread.join()


PICTURE = torch.linspace(0, 1, 8 * 8 * 3).reshape(8, 8, 3)


def test_a_model_is_shown_the_picture_and_says_yes_or_no(server: StandIn) -> None:
    server.answers = ["Yes.", "no", " YES, it is a skull", "No, this shows yes-men"[:2]]
    judge = VisionJudge("a skull", server.address, "small-vision", key="secret")
    assert [judge(PICTURE) for _ in range(4)] == [True, False, True, False]
    request = server.asked[0]
    assert request["path"] == "/v1/chat/completions"
    assert request["headers"]["Authorization"] == "Bearer secret"
    body = request["body"]
    assert (body["model"], body["temperature"]) == ("small-vision", 0)
    text, image = body["messages"][0]["content"]
    assert "a skull" in text["text"]
    kind, _, data = image["image_url"]["url"].partition(",")
    assert kind == "data:image/png;base64"
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))
    assert np.abs(shown / 255 - PICTURE.numpy()).max() <= 0.5 / 255 + 1e-6
    assert "secret" not in repr(judge)


def test_it_judges_networks(server: StandIn) -> None:
    server.answers = ["yes", "no", "yes", "yes"]
    judge = VisionJudge("a totem", server.address, "small-vision")
    assert judged(load_network("totem"), judge, weights=4, size=16) == 0.75
    assert len(server.asked) == 4
    assert "Authorization" not in server.asked[0]["headers"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("perhaps", "answered 'perhaps': expected yes or no"),
        ("yes and no", "expected yes or no"),
        ("", "expected yes or no"),
        (7, "sent 7, not a text"),
        ((200, b"<html>"), "sent no answer with choices"),
        ((200, b'{"choices": []}'), "sent no answer with choices"),
        ((200, b"x" * (1 << 21)), "sent more than"),
        ((500, b"out of memory"), "refused with 500 .*out of memory"),
        ((401, b"no such key"), "refused with 401 .*no such key"),
        ((307, b"http://elsewhere.invalid/"), "307 sent on to http://elsewhere.invalid/"),
    ],
)
def test_what_is_no_answer_is_an_error_of_ours(server: StandIn, answer: Any, message: str) -> None:
    server.answers = [answer]
    with pytest.raises(DataError, match=message):
        VisionJudge("a skull", server.address, "small-vision")(PICTURE)
    assert len(server.asked) == 1


def test_one_that_does_not_answer_is_given_up(server: StandIn) -> None:
    server.answers = ["wait"]
    judge = VisionJudge("a skull", server.address, "small-vision", timeout=0.1)
    with pytest.raises(DataError, match=r"no answer in 0\.1 seconds: raise its timeout"):
        judge(PICTURE)


def test_one_that_is_not_there_is_an_error_of_ours(server: StandIn) -> None:
    address = server.address.rpartition(":")[0] + ":1/v1"
    with pytest.raises(DataError, match=r"cannot be asked: .*refused"):
        VisionJudge("a skull", address, "small-vision")(PICTURE)


def test_it_is_off_unless_someone_says_which() -> None:
    with pytest.raises(RecipeError, match="INTARSIA_JUDGE_ADDRESS is not set"):
        VisionJudge.from_environment("a skull", {})
    with pytest.raises(RecipeError, match="INTARSIA_JUDGE_MODEL is not set"):
        VisionJudge.from_environment("a skull", {"INTARSIA_JUDGE_ADDRESS": "http://localhost/v1"})
    judge = VisionJudge.from_environment(
        "a skull",
        {
            "INTARSIA_JUDGE_ADDRESS": "https://models.example/v1",
            "INTARSIA_JUDGE_MODEL": "m",
            "INTARSIA_JUDGE_KEY": "k",
        },
        timeout=5.0,
    )
    assert (judge.address, judge.model, judge.key) == ("https://models.example/v1", "m", "k")
    assert judge.timeout == 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"address": "file:///etc/passwd"}, "begins with https:// or http://"),
        ({"address": "localhost:8000"}, "begins with https:// or http://"),
        ({"address": "http://models.example/v1", "key": "k"}, "key unencrypted"),
        ({"question": "Is it?"}, "does not name {thing}"),
        ({"timeout": 0.0}, "timeout is 0"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        VisionJudge(
            **{"thing": "a skull", "address": "http://localhost/v1", "model": "m"} | settings
        )


def test_words_in_braces_are_asked_as_they_are(server: StandIn) -> None:
    server.answers = ["yes"]
    question = "Is {thing} {here}, or {0}?"
    assert VisionJudge("a {skull}", server.address, "small-vision", question=question)(PICTURE)
    asked = server.asked[0]["body"]["messages"][0]["content"][0]["text"]
    assert asked == "Is a {skull} {here}, or {0}?"


@pytest.mark.parametrize(
    "address",
    ["http://[::1", "http://localhost:99999/v1", "http://local host/v1", "http://\u00fc/v1"],
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(RecipeError, match="the judge's address is"):
        VisionJudge("a skull", address, "small-vision")


@pytest.mark.parametrize("key", ["secret\n", "secret\r\nHost: other", "secr\u00e9t"])
def test_a_key_that_no_header_holds_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(RecipeError, match="key has a line break") as error:
        VisionJudge("a skull", "https://judge.invalid/v1", "small-vision", key=key)
    assert "secr" not in str(error.value)
