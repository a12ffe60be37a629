"""The guard alone: which requests reach the page, and what every answer carries."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from intarsia.studio.guard import Guard

UPLOADS = Path("/uploads")


async def app(scope: Any, receive: Any, send: Any) -> None:
    head = (
        b"<head><meta property='og:image'\n content='https://example.org/a.jpg' />"
        b"<meta name='twitter:card' content='x'/><meta charset='utf-8' /></head>"
    )
    headers = [(b"content-type", b"text/html"), (b"content-length", b"999")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": head[:30], "more_body": True})
    await send({"type": "http.response.body", "body": head[30:]})


def ask(
    path: str,
    method: str = "GET",
    host: str = "127.0.0.1:7878",
    at: str = "127.0.0.1",
    given: bytes = b"{}",
    uploads: Path = UPLOADS,
    **more: str,
) -> tuple[int, dict[bytes, bytes], bytes]:
    """Status, headers and body of an answer."""
    sent: list[Any] = []
    pieces = [given[i : i + 2**16] for i in range(0, len(given), 2**16)]

    async def receive() -> Any:
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", host.encode()), *((k.encode(), v.encode()) for k, v in more.items())]
    scope = {"type": "http", "method": method, "path": path, "headers": headers}
    asyncio.run(Guard(app, at, uploads)(scope, receive, send))
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], dict(sent[0]["headers"]), body


@pytest.mark.parametrize(
    ("host", "at", "status"),
    [
        ("127.0.0.1:7878", "127.0.0.1", 200),
        ("localhost:7878", "127.0.0.1", 200),
        ("[::1]:7878", "127.0.0.1", 200),
        ("evil.example:7878", "127.0.0.1", 421),
        ("192.168.1.5:7878", "127.0.0.1", 421),
        ("127.0.0.1.evil.example", "127.0.0.1", 421),
        ("", "127.0.0.1", 421),
        ("[broken", "127.0.0.1", 421),
        ("192.168.1.5:7878", "0.0.0.0", 200),
        ("evil.example", "0.0.0.0", 421),
        ("box.local:7878", "box.local", 200),
        ("MyBox:7878", "MyBox", 200),
        ("mybox:7878", "MyBox", 200),
    ],
)
def test_a_foreign_name_is_not_answered(host: str, at: str, status: int) -> None:
    assert ask("/", host=host, at=at)[0] == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:7878", 200),
        ("http://127.0.0.1:9999", 403),
        ("http://localhost:7878", 403),
        ("https://evil.example", 403),
        ("null", 403),
        ("http://[", 403),
    ],
)
def test_a_foreign_page_is_not_answered(origin: str, status: int) -> None:
    assert ask("/gradio_api/run/predict", "POST", origin=origin)[0] == status


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/gradio_api/file=/etc/passwd"),
        ("GET", "/file=/etc/passwd"),
        ("HEAD", "/gradio_api/file=/etc/passwd"),
        ("GET", "/gradio_api/proxy=https://example.org"),
        ("GET", "/gradio_api/info"),
        ("GET", "/config"),
        ("POST", "/gradio_api/queue/join"),
        ("POST", "/gradio_api/call/x"),
        ("POST", "/login"),
        ("PUT", "/"),
        ("OPTIONS", "/"),
    ],
)
def test_other_routes_are_not_there(method: str, path: str) -> None:
    assert ask(path, method)[0] == 404


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (b'{"data": [["0", "3"], {"path": "/uploads/1/x", "url": null}]}', 200),
        (b'{"data": [{"path": "/uploads/../etc/passwd"}]}', 400),
        (b'{"data": [{"path": "/etc/passwd"}]}', 400),
        (b'{"data": [{"path": "x"}]}', 400),
        (b'{"data": [{"path": ["/uploads/1/x"]}]}', 400),
        (b'{"data": [{"path": "/uploads/\\u0000"}]}', 400),
        (b'{"data": ["http://example.org is a name like any other"]}', 200),
        (b'{"data": [{"path": "http://example.org/x"}]}', 400),
        (b'{"data": [[{"deep": [{"path": "HTTPS://example.org/x"}]}]]}', 400),
        (b'{"data": [', 400),
        (b'{"data": ["' + b"x" * 2**22 + b'"]}', 400),
    ],
)
def test_files_that_were_not_uploaded_are_not_read(given: bytes, status: int) -> None:
    assert ask("/gradio_api/run/predict", "POST", given=given)[0] == status


@pytest.mark.parametrize(
    ("length", "status"), [("1000", 200), (str(2**26), 200), (str(2**27), 413), ("x", 413)]
)
def test_a_file_that_is_too_large_is_not_taken(length: str, status: int) -> None:
    given = {"content-length": length}
    result, _, words = ask("/gradio_api/upload", "POST", **given)
    assert (result, b"up to 64 MB" in words) == (status, status == 413)
    assert ask("/gradio_api/upload", "POST")[0] == 413


def test_files_that_nobody_asked_about_go_when_another_comes(tmp_path: Path) -> None:
    old, new = (tmp_path / name / "x.safetensors" for name in ("one", "two"))
    for path in (old, new):
        path.parent.mkdir()
        path.write_bytes(b"x")
    os.utime(old, (0, 0))
    ask("/gradio_api/upload", "POST", uploads=tmp_path, **{"content-length": "1"})
    assert (old.exists(), new.exists()) == (False, True)


def test_what_is_asked_with_reaches_the_application_whole() -> None:
    heard = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        heard.append(await receive())

    waiting = [
        {"type": "http.request", "body": b'{"data"', "more_body": True},
        {"type": "http.request", "body": b": 1}"},
    ]

    async def receive() -> Any:
        return waiting.pop(0)

    headers = [(b"host", b"localhost")]
    path = "/gradio_api/run/predict"
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    asyncio.run(Guard(app, "127.0.0.1", UPLOADS)(scope, receive, None))  # type: ignore[arg-type]
    assert heard == [{"type": "http.request", "body": b'{"data": 1}'}]


def test_the_page_names_no_one_else_and_may_ask_no_one_else() -> None:
    status, headers, body = ask("/")
    assert status == 200
    assert body == b"<head><meta charset='utf-8' /></head>"
    assert headers[b"content-length"] == str(len(body)).encode()
    assert b"default-src 'self'" in headers[b"content-security-policy"]
    other = ask("/assets/index.js")
    assert b"connect-src 'self'" in other[1][b"content-security-policy"]
    assert ask("/config")[1][b"content-security-policy"] == headers[b"content-security-policy"]


def test_a_websocket_is_not_answered() -> None:
    async def never(*args: Any) -> None:
        raise AssertionError("the application was asked")

    asyncio.run(Guard(never, "127.0.0.1", UPLOADS)({"type": "websocket"}, None, None))  # type: ignore[arg-type]
