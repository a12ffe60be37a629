"""The guard between the studio and the network: one host, one page, nothing from elsewhere."""

import asyncio
import json
import math
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import SplitResult, parse_qs, urlsplit

from intarsia.errors import FileError
from intarsia.studio.visitors import VISITOR
from intarsia.studio.web.studio_limits import StudioLimits, megabytes

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# The routes the page needs. Gradio has many more: files of the disk, a proxy, an API, a queue.
GET_PATHS = re.compile(
    r"/|/(assets|static)/.+|/theme\.css|/favicon\.ico|/manifest\.json"
    r"|/gradio_api/(upload_progress|heartbeat/[0-9A-Za-z_]+)"
)
HEARTBEAT = "/gradio_api/heartbeat/"
PREDICT = "/gradio_api/run/predict"
UPLOAD = "/gradio_api/upload"
POST_PATHS = re.compile(f"{PREDICT}|{UPLOAD}")
AT_ONCE = 3  # answers that are computed: more of them would only make all of them wait
LARGEST = 2**18  # bytes of a request; files go another way
ENVELOPE = 2**16  # bytes by which a request may be longer than its file
HOST_HEADER = re.compile(rb"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
VISITOR_ID = re.compile(r"[0-9a-f]{32}")
LONGEST_PATH = 255  # bytes, of which a file's name may have as many
JSON = b"application/json"
NO_REASON = b'{"error":null}'  # Gradio's answer to what went wrong in it or below it
NOT_ANSWERED = json.dumps(
    {"error": "The studio cannot answer this; where the page itself asked, its terminal says why."}
)
# Where a visit with the token goes on without it, from a page of the studio's own, so that the
# browser sends the cookie; with a redirect it would not, after a link on another site.
ENTRANCE = (
    "<!doctype html><html lang='en'><title>intarsia studio</title>"
    "<meta http-equiv='refresh' content='0;url=/'><a href='/'>intarsia studio</a></html>"
)
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
HOST, PORT = "127.0.0.1", 7878
LOOPBACK = ("localhost", HOST, "::1")
SOCIAL_TAGS = re.compile(rb"<meta\s[^>]*(?:og:|twitter:)[^>]*/>\s*")


class Uploads(Protocol):
    """Whose files there are, and whether there is room for more: `Visitors`, or `NoUploads`."""

    @property
    def limits(self) -> StudioLimits: ...

    def receiving(self, visitor: str, length: int) -> AbstractContextManager[None]: ...

    def arrived(self, visitor: str, paths: Sequence[Path]) -> None: ...

    def owns(self, visitor: str, path: Path) -> bool: ...


class NoUploads:
    """Of a page that takes no files."""

    def __init__(self, limits: StudioLimits | None = None) -> None:
        self.limits = limits or StudioLimits()

    def receiving(self, visitor: str, length: int) -> AbstractContextManager[None]:
        raise FileError("this page takes no files: give their paths to the command")

    def arrived(self, visitor: str, paths: Sequence[Path]) -> None:
        """Never reached."""

    def owns(self, visitor: str, path: Path) -> bool:
        return False


@dataclass(frozen=True)
class StudioAddress:
    """Where a studio is: the host as the user named it, its port, and a token if it wants one."""

    host: str = HOST
    port: int = PORT
    token: str | None = None

    @property
    def url(self) -> str:
        """The address for a browser on this machine, with the token."""
        everywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
        name = everywhere.get(self.host, f"[{self.host}]" if ":" in self.host else self.host)
        return f"http://{name}:{self.port}/" + (f"?token={self.token}" if self.token else "")


LOCAL = StudioAddress()


class Guard:
    """An ASGI application around another.

    A request must name the machine as the user did, so that an attacker's host name that resolves
    to it gets no answer (DNS rebinding), and must come from the page itself. Where there is a
    token, it must have that, too: in the address of the first visit, then in a cookie. A second
    cookie tells visitors apart. The tags that describe Gradio to social networks are removed from
    the page's head, and its policy keeps the browser from asking any other host. Values that name
    a file which this visitor did not upload are refused: Gradio would copy it from the disk, or
    fetch it from the web, before anyone looks at it.
    """

    def __init__(self, app: App, visitors: Uploads, address: StudioAddress = LOCAL) -> None:
        self.app, self.visitors = app, visitors
        self.host, self.token = address.host.lower(), address.token
        self._computing = asyncio.Semaphore(AT_ONCE)
        # Cookies do not know ports: studios on one machine would overwrite each other's.
        self.token_cookie = f"intarsia-token-{address.port}"
        self.visitor_cookie = f"intarsia-visitor-{address.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # nothing here uses a websocket
        send = _with_headers(send, *HEADERS)
        if reason := self.refusal(scope):
            return await _answer(send, *reason)
        if scope["path"] == "/" and self._is_token(_token_in(scope)):
            cookie = self._cookie(self.token_cookie, str(self.token), "Strict")
            return await _answer(send, 200, ENTRANCE, (b"content-type", b"text/html"), cookie)
        visitor, cookies = self._visitor(scope)
        VISITOR.set(visitor)
        with _QuietWhenGone(receive) as listening:
            await self._pass_on(scope, listening.receive, _with_headers(send, *cookies), visitor)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, visitor: str) -> None:
        if scope["path"] == UPLOAD:
            return await self._upload(scope, receive, send, visitor)
        if scope["path"] == PREDICT:
            values = _read(await _body(receive))
            if values is None or not self._only_uploads(values, visitor):
                return await _answer(send, 400, "The studio does not accept these values.")
            body = json.dumps(_named_for(visitor, values)).encode()
            answer, failed = _Answer(), False
            try:
                async with self._computing:
                    await self.app(scope, _replay(body, receive), answer.take)
            except Exception:  # whatever Gradio says to values that no page of it would send
                failed = True
            if failed or answer.has_no_reason():
                return await _answer(send, 422, NOT_ANSWERED, (b"content-type", JSON))
            return await answer.give(send)  # however slowly it is fetched
        if scope["path"].startswith(HEARTBEAT):
            scope = _with_path(scope, f"{HEARTBEAT}{visitor}{scope['path'][len(HEARTBEAT) :]}")
        if scope["path"] == "/":
            plain = [(k, v) for k, v in scope["headers"] if k != b"accept-encoding"]
            return await self.app({**scope, "headers": plain}, receive, _without_social_tags(send))
        await self.app(scope, receive, send)

    async def _upload(self, scope: Scope, receive: Receive, send: Send, visitor: str) -> None:
        """Pass a file on if there is room for it, and note whose it is."""
        length = int(dict(scope["headers"])[b"content-length"])
        answer = _Answer()
        try:
            with self.visitors.receiving(visitor, length):
                await self.app(scope, receive, answer.take)
                self.visitors.arrived(visitor, answer.paths())
        except FileError as error:
            while not answer.messages and (await receive()).get("more_body"):
                pass  # a browser that is not listened to would not listen to the answer
            return await _answer(send, 413, f"{error}.")
        except Exception:  # of whoever reads the form: it is malformed
            return await _answer(send, 400, "The studio cannot read this upload.")
        await answer.give(send)

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Why a request is not answered, with its status; None where it is."""
        headers = scope["headers"]
        host = _host(headers)
        if host is None or not scope.get("raw_path", b"/").startswith(b"/"):
            return 400, "The request does not name the studio in one well-formed Host header."
        if not self.is_own_name(_split(f"//{host}").hostname or ""):
            return 421, (
                f"The studio is not at {host!r}: open the address that it printed, or start it "
                "with --host and this name."
            )
        origins = [value.decode("latin-1") for key, value in headers if key == b"origin"]
        if any(_split(origin).netloc.lower() != host.lower() for origin in origins):
            return 403, "Requests must come from the studio's own page."
        if self.token is not None and not self._has_token(scope):
            return 403, "The studio wants its token: open the whole address that it printed."
        method, path = scope["method"], scope["path"]
        known = {"GET": GET_PATHS, "HEAD": GET_PATHS, "POST": POST_PATHS}.get(method)
        if known is None or not known.fullmatch(path) or len(path.encode()) > LONGEST_PATH:
            return 404, "The studio has no such page."
        largest = self.visitors.limits.file_bytes
        lengths = [value for key, value in headers if key == b"content-length"]
        fits = len(lengths) == 1 and _number(lengths[0]) <= largest + ENVELOPE
        if path == UPLOAD and not fits:
            return 413, f"Files may have up to {megabytes(largest)}."
        return None

    def is_own_name(self, name: str) -> bool:
        """Whether this names the machine and cannot be made to by anybody else.

        Where the studio listens beyond the loopback, any numeric address may be the machine's;
        rebinding needs a host name.
        """
        if name == self.host or name in LOOPBACK:
            return True
        return not is_loopback(self.host) and _address(name) is not None

    def _has_token(self, scope: Scope) -> bool:
        """Whether a request has the token in its cookie or, for the page itself, its address."""
        if self._is_token(_cookies(scope["headers"]).get(self.token_cookie, "")):
            return True
        return scope["path"] == "/" and self._is_token(_token_in(scope))

    def _is_token(self, given: str) -> bool:
        """Compared in a time that does not depend on where the two differ."""
        return self.token is not None and secrets.compare_digest(
            given.encode("utf-8", "replace"), self.token.encode()
        )

    def _visitor(self, scope: Scope) -> tuple[str, list[tuple[bytes, bytes]]]:
        """Who asks, and the cookie that a new visitor is given."""
        known = _cookies(scope["headers"]).get(self.visitor_cookie, "")
        if VISITOR_ID.fullmatch(known):
            return known, []
        new = secrets.token_hex(16)
        return new, [self._cookie(self.visitor_cookie, new, "Lax")]

    @staticmethod
    def _cookie(name: str, value: str, same_site: str) -> tuple[bytes, bytes]:
        text = f"{name}={value}; Path=/; HttpOnly; SameSite={same_site}"
        return b"set-cookie", text.encode()

    def _only_uploads(self, given: dict[str, Any], visitor: str) -> bool:
        """Whether all files named in a request are this visitor's."""
        values: list[Any] = [given]
        while values:
            value = values.pop()
            if isinstance(value, dict):
                if "path" in value and not self._uploaded(value["path"], visitor):
                    return False
                values.extend(value.values())
            elif isinstance(value, list):
                values.extend(value)
        return True

    def _uploaded(self, path: Any, visitor: str) -> bool:
        try:
            return self.visitors.owns(visitor, Path(path).resolve())
        except (TypeError, ValueError, OSError):
            return False


class _QuietWhenGone:
    """What goes wrong in the application after the client has gone is nobody's fault."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._gone = receive, False

    async def receive(self) -> Message:
        message = await self._receive()
        self._gone = self._gone or message["type"] == "http.disconnect"
        return message

    def __enter__(self) -> "_QuietWhenGone":
        return self

    def __exit__(self, kind: type[BaseException] | None, *about: object) -> bool:
        return self._gone and kind is not None and issubclass(kind, Exception)


class _Answer:
    """An answer of the application that is looked at before it is given."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def take(self, message: Message) -> None:
        self.messages.append(message)

    async def give(self, send: Send) -> None:
        for message in self.messages:
            await send(message)

    def has_no_reason(self) -> bool:
        """Whether it says no more than that something went wrong."""
        if not self.messages or self.messages[0].get("status") != 500:
            return False
        return NO_REASON in b"".join(message.get("body", b"") for message in self.messages[1:])

    def paths(self) -> list[Path]:
        """The files that an upload's answer names; none where it failed."""
        if not self.messages or self.messages[0].get("status") != 200:
            return []
        body = b"".join(message.get("body", b"") for message in self.messages[1:])
        return [Path(path) for path in json.loads(body)]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    address = _address(host)
    return host.lower() in LOOPBACK or (address is not None and address.is_loopback)


def _host(headers: list[tuple[bytes, bytes]]) -> str | None:
    """The one Host header; None where there are none or several, or it is malformed."""
    given = [value for key, value in headers if key == b"host"]
    match = HOST_HEADER.fullmatch(given[0]) if len(given) == 1 else None
    if match is None or (match[1] and not 0 < int(match[1]) < 2**16):
        return None
    return given[0].decode("ascii")


def _cookies(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Cookies by their names; of several of one name the first, as browsers order them."""
    cookies: dict[str, str] = {}
    for key, value in headers:
        if key == b"cookie":
            for pair in value.decode("latin-1").split(";"):
                name, _, content = pair.strip().partition("=")
                cookies.setdefault(name, content)
    return cookies


def _token_in(scope: Scope) -> str:
    """The token in an address; empty where there is none."""
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"), max_num_fields=None)
    return query.get("token", [""])[0]


def _number(text: bytes) -> float:
    return int(text) if text.isdigit() and len(text) < 16 else math.inf


def _split(address: str) -> SplitResult:
    """The parts of an address; all empty where it cannot be read."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name)
    except ValueError:
        return None


def _with_headers(send: Send, *more: tuple[bytes, bytes]) -> Send:
    """Add headers to every answer."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *more]}
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
        await send({**start, "headers": [*kept, length]})
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


def _read(body: bytes | None) -> dict[str, Any] | None:
    """The JSON object of a request; None where it is something else."""
    try:
        values = json.loads(body or b"")
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def _named_for(visitor: str, values: dict[str, Any]) -> dict[str, Any]:
    """A page's name for itself, made one that no other visitor can say.

    Gradio keeps a page's last switch and its lists under that name.
    """
    page = values.get("session_hash")
    return values if page is None else {**values, "session_hash": f"{visitor}{page}"}


def _with_path(scope: Scope, path: str) -> Scope:
    return {**scope, "path": path, "raw_path": path.encode()}


def _replay(body: bytes, receive: Receive) -> Receive:
    """A receiver that gives the body that was read already, then what follows it."""
    waiting = [{"type": "http.request", "body": body}]

    async def receiving() -> Message:
        return waiting.pop() if waiting else await receive()

    return receiving


async def _answer(send: Send, status: int, text: str, *more: tuple[bytes, bytes]) -> None:
    """Answer, and close the connection: a body that was refused is not read."""
    kind = [] if more else [(b"content-type", b"text/plain; charset=utf-8")]
    headers = [*kind, *more, (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{text}\n".encode()})
