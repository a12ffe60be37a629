"""The guard alone: which requests reach the page, and what every answer carries."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from intarsia.studio.visitors import VISITOR, Visitors
from intarsia.studio.web.guard import AT_ONCE, Guard, StudioAddress, is_loopback
from intarsia.studio.web.studio_limits import StudioLimits

UPLOADS = Path("/uploads")
ME, YOU = "a" * 32, "b" * 32
TOKEN = "a-token-of-my-own"


def visitors_of(uploads: Path = UPLOADS, **limits: Any) -> Visitors:
    """Without a session, which the guard never asks for."""
    return Visitors(None, uploads, StudioLimits(**limits))  # type: ignore[arg-type]


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
    visitors: Visitors | None = None,
    token: str | None = None,
    application: Any = app,
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
    path, _, query = path.partition("?")
    scope = {"type": "http", "method": method, "path": path, "headers": headers}
    scope |= {"raw_path": path.encode(), "query_string": query.encode()}
    guard = Guard(application, visitors or visitors_of(), StudioAddress(at, 7878, token))
    asyncio.run(guard(scope, receive, send))
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], dict(sent[0]["headers"]), body


def test_the_address_is_one_that_a_browser_here_can_open() -> None:
    assert StudioAddress().url == "http://127.0.0.1:7878/"
    assert StudioAddress("0.0.0.0", 9000).url == "http://127.0.0.1:9000/"
    assert StudioAddress("::").url == "http://[::1]:7878/"
    assert StudioAddress("fe80::1", token=TOKEN).url == f"http://[fe80::1]:7878/?token={TOKEN}"


NAMES = {  # that a browser may ask for, by where the studio listens and the status of the answer
    "127.0.0.1": {
        200: ["127.0.0.1:7878", "localhost:7878", "[::1]:7878"],
        421: ["evil.example:7878", "192.168.1.5:7878", "127.0.0.1.evil.example"],
        400: [
            *("", "[broken", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:78x"),
            *("127.0.0.1:7878:7878", "me@127.0.0.1", "127.0.0.1@evil.example"),
            *("127.0.0.1, evil.example", " 127.0.0.1", "127.0.0.1/", "127.0.0.1#", "127.0.0.1?"),
            *("local\nhost", "löcalhost", "[::1%25eth0]"),
        ],
    },
    "0.0.0.0": {200: ["192.168.1.5:7878"], 421: ["evil.example"]},
    "box.local": {200: ["box.local:7878"]},
    "MyBox": {200: ["MyBox:7878", "mybox:7878"]},
}


@pytest.mark.parametrize(
    ("host", "at", "status"),
    [
        (host, at, status)
        for at, answers in NAMES.items()
        for status, hosts in answers.items()
        for host in hosts
    ],
)
def test_a_foreign_name_is_not_answered(host: str, at: str, status: int) -> None:
    assert ask("/", host=host, at=at)[0] == status


@pytest.mark.parametrize("target", ["http://127.0.0.1:7878/", "127.0.0.1:7878", "*", ""])
def test_a_target_is_a_path(target: str) -> None:
    assert ask(target)[0] == 400


@pytest.mark.parametrize("given", [[], [b"127.0.0.1", b"127.0.0.1"], [b"127.0.0.1", b"evil"]])
def test_a_request_has_one_host(given: list[bytes]) -> None:
    headers = [(b"host", value) for value in given]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": headers}
    refusal = Guard(app, visitors_of()).refusal(scope)
    assert refusal is not None
    assert refusal[0] == 400


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("LocalHost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.5", False),
        ("box.local", False),
    ],
)
def test_what_only_this_machine_reaches(host: str, alone: bool) -> None:
    assert is_loopback(host) is alone


@pytest.mark.parametrize(
    ("path", "cookie", "status"),
    [
        ("/", "", 403),
        ("/?token=", "", 403),
        ("/?token=another-of-my-own", "", 403),
        ("/assets/index.js", "", 403),
        (f"/assets/index.js?token={TOKEN}", "", 403),
        ("/", f"intarsia-token-7878={TOKEN}", 200),
        ("/assets/index.js", f"x=y; intarsia-token-7878={TOKEN}", 200),
        ("/", f"intarsia-token-7879={TOKEN}", 403),
        ("/", "intarsia-token-7878=another-of-my-own", 403),
        ("/", "intarsia-token-7878=\u00e9", 403),
        ("/config", "", 403),
        ("/config", f"intarsia-token-7878={TOKEN}", 404),
    ],
)
def test_nothing_is_answered_without_the_token(path: str, cookie: str, status: int) -> None:
    assert ask(path, token=TOKEN, at="0.0.0.0", cookie=cookie)[0] == status
    assert ask(path, at="127.0.0.1")[0] in (200, 404)  # where there is none, none is wanted


def test_a_token_in_the_address_becomes_a_cookie_and_is_seen_no_more() -> None:
    status, headers, body = ask(f"/?token={TOKEN}", token=TOKEN)
    assert status == 200
    assert b"url=/'" in body
    assert TOKEN.encode() not in body
    cookie = headers[b"set-cookie"].decode()
    assert cookie == f"intarsia-token-7878={TOKEN}; Path=/; HttpOnly; SameSite=Strict"
    assert ask("/", token=TOKEN, cookie=cookie.partition(";")[0])[0] == 200


def test_a_visitor_is_known_by_a_cookie() -> None:
    heard = []

    async def who(scope: Any, receive: Any, send: Any) -> None:
        heard.append(VISITOR.get())
        await app(scope, receive, send)

    cookie = ask("/", application=who)[1][b"set-cookie"].decode()
    match = re.fullmatch(
        r"(intarsia-visitor-7878=([0-9a-f]{32})); Path=/; HttpOnly; SameSite=Lax", cookie
    )
    assert match is not None
    assert b"set-cookie" not in ask("/", application=who, cookie=match[1])[1]
    assert heard == [match[2], match[2]]
    ask("/", application=who, cookie="intarsia-visitor-7878=me")  # not one that was given
    assert re.fullmatch(r"[0-9a-f]{32}", heard[-1])
    assert heard[-1] != match[2]


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
        ("GET", f"/assets/{'x' * 300}.js"),
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
        (b"[1]", 400),
        (b"[" * 10**5, 400),
        (b'{"data": ["' + b"x" * 2**22 + b'"]}', 400),
    ],
)
def test_files_that_were_not_uploaded_are_not_read(
    given: bytes, status: int, tmp_path: Path
) -> None:
    file = tmp_path / "1" / "x"
    file.parent.mkdir()
    file.write_bytes(b"x")
    visitors = visitors_of(tmp_path)
    visitors.arrived(ME, [file])
    given = given.replace(b"/uploads/", f"{tmp_path}/".encode())
    more = {"given": given, "visitors": visitors}
    mine, yours = (f"intarsia-visitor-7878={visitor}" for visitor in (ME, YOU))
    assert ask("/gradio_api/run/predict", "POST", cookie=mine, **more)[0] == status
    other = 400 if b"path" in given else status
    assert ask("/gradio_api/run/predict", "POST", cookie=yours, **more)[0] == other


@pytest.mark.parametrize(
    ("length", "status"), [("1000", 200), (str(2**26), 200), (str(2**27), 413), ("x", 413)]
)
def test_a_file_that_is_too_large_is_not_taken(length: str, status: int) -> None:
    async def none(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"[]"})

    given: dict[str, Any] = {"content-length": length, "application": none}
    result, _, words = ask("/gradio_api/upload", "POST", **given)
    assert (result, b"up to 64 MB" in words) == (status, status == 413)
    assert ask("/gradio_api/upload", "POST")[0] == 413


def test_an_upload_beyond_the_quota_is_refused_in_our_words(tmp_path: Path) -> None:
    read = []

    async def receiver(scope: Any, receive: Any, send: Any) -> None:
        read.append(await receive())
        path = tmp_path / "x.safetensors"
        path.write_bytes(b"x" * 600)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": f'["{path}"]'.encode()})

    visitors = visitors_of(tmp_path, visitor_bytes=1000)
    given: dict[str, Any] = {"visitors": visitors, "application": receiver}
    given |= {"content-length": "700", "cookie": f"intarsia-visitor-7878={ME}"}
    status, _, body = ask("/gradio_api/upload", "POST", **given)
    assert (status, body) == (200, f'["{tmp_path / "x.safetensors"}"]'.encode())
    assert visitors.owns(ME, tmp_path / "x.safetensors")
    status, _, body = ask("/gradio_api/upload", "POST", **given)
    assert (status, len(read)) == (413, 1)
    assert body == (
        b"your modules and uploads would take 1 MB, the limit is 1 MB: remove some first.\n"
    )


def test_several_files_in_one_upload_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("x", "y")]

    async def receiver(scope: Any, receive: Any, send: Any) -> None:
        await receive()  # all of it: the next call would wait until the client goes
        for path in paths:
            path.write_bytes(b"x")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps([*map(str, paths)]).encode()})

    given: dict[str, Any] = {"application": receiver, "content-length": "2"}
    status, _, body = ask("/gradio_api/upload", "POST", visitors=visitors_of(tmp_path), **given)
    assert (status, body) == (413, b"several files came at once: send one at a time.\n")
    assert not any(path.exists() for path in paths)


def test_who_hangs_up_causes_no_error() -> None:
    class GoneError(Exception):
        pass

    async def reader(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        raise GoneError

    async def hung_up() -> Any:
        return {"type": "http.disconnect"}

    async def here() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        pass

    scope = {"type": "http", "method": "GET", "path": "/theme.css"}
    scope |= {"headers": [(b"host", b"localhost")], "raw_path": b"/theme.css"}
    guard = Guard(reader, visitors_of())
    asyncio.run(guard(scope, hung_up, send))
    with pytest.raises(GoneError):
        asyncio.run(guard(scope, here, send))


def test_what_is_asked_with_reaches_the_application_whole() -> None:
    heard = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        heard.append(await receive())

    waiting = [
        {"type": "http.request", "body": b'{"data"', "more_body": True},
        {"type": "http.request", "body": b': 1, "session_hash": "page"}'},
    ]

    async def receive() -> Any:
        return waiting.pop(0)

    headers = [(b"host", b"localhost"), (b"cookie", f"intarsia-visitor-7878={ME}".encode())]
    path = "/gradio_api/run/predict"
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    guard = Guard(app, visitors_of())
    asyncio.run(guard(scope, receive, None))  # type: ignore[arg-type]
    assert json.loads(heard[0]["body"]) == {"data": 1, "session_hash": f"{ME}page"}


async def fails(scope: Any, receive: Any, send: Any) -> None:
    raise KeyError(2**31)


async def answers_nothing_of_use(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 500, "headers": []})
    await send({"type": "http.response.body", "body": b'{"error":null}'})


@pytest.mark.parametrize("application", [fails, answers_nothing_of_use])
def test_calls_that_no_page_would_make_are_refused_in_our_words(application: Any) -> None:
    status, _, body = ask("/gradio_api/run/predict", "POST", application=application)
    assert status == 422
    assert "cannot answer this" in json.loads(body)["error"]


def test_a_malformed_upload_is_refused_in_our_words() -> None:
    length = {"content-length": "2"}
    status, _, body = ask("/gradio_api/upload", "POST", application=fails, **length)
    assert (status, body) == (400, b"The studio cannot read this upload.\n")


def test_only_a_few_answers_are_computed_at_once() -> None:
    working, most = [0], [0]

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        working[0] += 1
        most[0] = max(most[0], working[0])
        await asyncio.sleep(0.01)
        working[0] -= 1
        await app(scope, receive, send)

    async def fetching(message: Any) -> None:
        await asyncio.sleep(0 if finished.is_set() else 60)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"{}"}

    async def at_once() -> None:
        headers = [(b"host", b"localhost")]
        scope = {"type": "http", "method": "POST", "path": "/gradio_api/run/predict"}
        scope |= {"headers": headers, "raw_path": b"/gradio_api/run/predict"}
        guard = Guard(slow, visitors_of())
        # Who fetches no answer keeps nobody else from getting theirs.
        idle = [asyncio.create_task(guard(scope, receive, fetching)) for _ in range(AT_ONCE)]
        await asyncio.sleep(0.1)
        finished.set()
        await asyncio.gather(*(guard(scope, receive, fetching) for _ in range(3 * AT_ONCE)))
        for task in idle:
            task.cancel()

    finished = asyncio.Event()
    asyncio.run(asyncio.wait_for(at_once(), 20))
    assert most == [AT_ONCE]


def test_a_page_is_kept_under_a_name_that_only_its_visitor_can_say() -> None:
    heard = []

    async def which(scope: Any, receive: Any, send: Any) -> None:
        heard.append((scope["path"], scope["raw_path"]))
        await app(scope, receive, send)

    given: dict[str, Any] = {"application": which, "cookie": f"intarsia-visitor-7878={ME}"}
    ask("/gradio_api/heartbeat/page", **given)
    assert heard == [(path := f"/gradio_api/heartbeat/{ME}page", path.encode())]


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

    guard = Guard(never, visitors_of())
    asyncio.run(guard({"type": "websocket"}, None, None))  # type: ignore[arg-type]
