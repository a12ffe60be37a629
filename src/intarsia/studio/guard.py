"""The guard between the studio and the network: one host, one page, nothing from elsewhere."""

import json
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# The routes the page needs. Gradio has many more: files of the disk, a proxy, an API, a queue.
GET_PATHS = re.compile(
    r"/|/(assets|static)/.+|/theme\.css|/favicon\.ico|/manifest\.json"
    r"|/gradio_api/(upload_progress|heartbeat/\w+)"
)
PREDICT = "/gradio_api/run/predict"
UPLOAD = "/gradio_api/upload"
POST_PATHS = re.compile(f"{PREDICT}|{UPLOAD}")
LARGEST = 2**22  # bytes of a request; files go another way
LARGEST_FILE = 64 * 2**20  # bytes
ENVELOPE = 2**16  # bytes by which a request may be longer than its file
UNCLAIMED = 60  # seconds after which an unused upload is deleted when another one arrives
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self'; worker-src 'self' blob:; frame-src 'none'; object-src 'none'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
]
LOOPBACK = ("localhost", "127.0.0.1", "::1")
SOCIAL_TAGS = re.compile(rb"<meta\s[^>]*(?:og:|twitter:)[^>]*/>\s*")


class Guard:
    """An ASGI application around another.

    A request must name the machine as the user did, so that an attacker's host name that resolves
    to it gets no answer (DNS rebinding), and must come from the page itself. The tags that describe
    Gradio to social networks are removed from the page's head, and its policy keeps the browser
    from asking any other host. Values that name a file which was not uploaded are refused: Gradio
    would copy it from the disk, or fetch it from the web, before anyone looks at it.
    """

    def __init__(self, app: App, host: str, uploads: Path) -> None:
        self.app, self.host, self.uploads = app, host.lower(), uploads.resolve()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # nothing here uses a websocket
        if reason := self.refusal(scope["method"], scope["path"], dict(scope["headers"])):
            return await _answer(send, *reason)
        if scope["path"] == UPLOAD:
            self._delete_stale_uploads()
        if scope["path"] == PREDICT:
            body = await _body(receive)
            if body is None or not self._only_uploads(body):
                return await _answer(send, 400, "The studio does not accept these values.")
            receive = _replay(body, receive)
        if scope["path"] == "/":
            plain = [(k, v) for k, v in scope["headers"] if k != b"accept-encoding"]
            return await self.app({**scope, "headers": plain}, receive, _without_social_tags(send))
        await self.app(scope, receive, _with_policy(send))

    def refusal(
        self, method: str, path: str, headers: dict[bytes, bytes]
    ) -> tuple[int, str] | None:
        """Why a request is not answered, with its status; None where it is."""
        host = headers.get(b"host", b"").decode("latin-1")
        if not self.is_own_name(_split(f"//{host}").hostname or ""):
            return 421, (
                f"The studio is not at {host!r}: open the address that it printed, or start it "
                "with --host and this name."
            )
        origin = headers.get(b"origin")
        if origin is not None and _split(origin.decode("latin-1")).netloc.lower() != host.lower():
            return 403, "Requests must come from the studio's own page."
        known = {"GET": GET_PATHS, "HEAD": GET_PATHS, "POST": POST_PATHS}.get(method)
        if known is None or not known.fullmatch(path):
            return 404, "The studio has no such page."
        length = headers.get(b"content-length", b"")
        fits = length.isdigit() and int(length) <= LARGEST_FILE + ENVELOPE
        if path == UPLOAD and not fits:
            return 413, f"Files may have up to {LARGEST_FILE // 2**20} MB."
        return None

    def is_own_name(self, name: str) -> bool:
        """Whether this names the machine and cannot be made to by anybody else.

        Where the studio listens beyond the loopback, any numeric address may be the machine's;
        rebinding needs a host name.
        """
        if name == self.host or name in LOOPBACK:
            return True
        return self.host not in LOOPBACK and _is_address(name)

    def _only_uploads(self, body: bytes) -> bool:
        """Whether all files named in a request were uploaded; False if it is not JSON."""
        try:
            values = [json.loads(body)]
        except (ValueError, RecursionError):
            return False
        while values:
            value = values.pop()
            if isinstance(value, dict):
                if "path" in value and not self._uploaded(value["path"]):
                    return False
                values.extend(value.values())
            elif isinstance(value, list):
                values.extend(value)
        return True

    def _delete_stale_uploads(self) -> None:
        """Delete files that arrived a while ago and were never used."""
        for path in self.uploads.glob("*/*"):
            if path.is_file() and path.stat().st_mtime < time.time() - UNCLAIMED:
                path.unlink(missing_ok=True)

    def _uploaded(self, path: Any) -> bool:
        try:
            return Path(path).resolve().is_relative_to(self.uploads)
        except (TypeError, ValueError, OSError):
            return False


def _split(address: str) -> SplitResult:
    """The parts of an address; all empty where it cannot be read."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _with_policy(send: Send) -> Send:
    """Add the policy to every answer."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *HEADERS]
        await send(message)

    return sending


def _without_social_tags(send: Send) -> Send:
    """The page without the tags in its head that name other hosts."""
    begun: list[Message] = []
    body = bytearray()

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            begun.append(message)
            return
        body.extend(message.get("body", b""))
        if message.get("more_body"):
            return
        content = SOCIAL_TAGS.sub(b"", bytes(body))
        start = begun[0]
        kept = [(k, v) for k, v in start.get("headers", []) if k.lower() != b"content-length"]
        length = (b"content-length", str(len(content)).encode())
        await send({**start, "headers": [*kept, length, *HEADERS]})
        await send({"type": "http.response.body", "body": content})

    return sending


async def _body(receive: Receive) -> bytes | None:
    """The body of a request; None where it is too large, or was broken off."""
    content, more = bytearray(), True
    while more:
        message = await receive()
        content.extend(message.get("body", b""))
        more = message.get("more_body", False)
        if message["type"] != "http.request" or len(content) > LARGEST:
            return None
    return bytes(content)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A receiver that gives the body that was read already, then what follows it."""
    waiting = [{"type": "http.request", "body": body}]

    async def receiving() -> Message:
        return waiting.pop() if waiting else await receive()

    return receiving


async def _answer(send: Send, status: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{text}\n".encode()})
