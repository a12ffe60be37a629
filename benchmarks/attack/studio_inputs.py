"""Requests to the studio: what a browser would never send, and values that no control has."""

import asyncio
import io
import json
import re
import struct
import zlib
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from PIL import Image

from benchmarks.attack import mutations
from benchmarks.attack.module_inputs import originals
from benchmarks.attack.surface import Input, Maker, RefusalError, Surface
from benchmarks.small_data import zipped
from intarsia.data import load_data
from intarsia.encoders import Encoder
from intarsia.studio import Session
from intarsia.studio.web.server import application

HOST = b"127.0.0.1:7878"
PREDICT, UPLOAD = "/gradio_api/run/predict", "/gradio_api/upload"
App = Callable[[Any, Any, Any], Awaitable[None]]
_OPEN = ExitStack()  # as long as the process
VISITOR = (b"cookie", b"intarsia-visitor-7878=" + b"0" * 32)


def _corner(x: torch.Tensor) -> torch.Tensor:
    """An encoder: the first four pixels."""
    return x.flatten(1)[:, :4]


ENCODER = Encoder.of(_corner, (3, 8, 8))


def surfaces(folder: Path) -> list[Surface]:
    # With an encoder, so that the page has a place for pictures.
    modules = [replace(module, encoder=ENCODER) for module in originals(folder)[:2]]
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(1)).numpy()
    data = load_data(x, [("cat", "dog", "eel")[i % 3] for i in range(60)])
    app = _OPEN.enter_context(application(Session(modules, data), "attack"))
    return [Surface("studio requests", _kinds(app, folder), weight=2)]


async def ask(
    app: App, method: str, path: str, headers: list[tuple[bytes, bytes]], body: bytes
) -> tuple[int, bytes]:
    """The status and body of an answer, asked of the application itself."""
    messages: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]
    answer: list[Any] = []

    async def receive() -> Any:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        answer.append(message)

    scope = {
        **{"type": "http", "http_version": "1.1", "method": method, "scheme": "http"},
        **{
            "path": path,
            "raw_path": path.encode("utf-8", "replace"),
            "query_string": b"",
            "root_path": "",
        },
        **{
            "headers": headers,
            "client": ("127.0.0.1", 5),
            "server": ("127.0.0.1", 7878),
            "asgi": {"version": "3.0"},
        },
    }
    await app(scope, receive, send)
    status = next((m["status"] for m in answer if m["type"] == "http.response.start"), 0)
    return status, b"".join(m.get("body", b"") for m in answer)


class StatusError(Exception):
    """The server says that it failed itself."""


def _is_said(answer: bytes) -> bool:
    """Whether an error is one that Gradio tells the page of; what it does not expect is null."""
    try:
        content = json.loads(answer)
    except ValueError:
        return False
    return isinstance(content, dict) and isinstance(content.get("error"), str)


def _asking(app: App, method: str, path: str, headers: Any, body: bytes = b"") -> Input:
    def use() -> int:
        return _judged(*asyncio.run(asyncio.wait_for(ask(app, method, path, headers, body), 20)))

    return Input(use)


def _judged(status: int, answer: bytes, refused: bool = False) -> int:
    """The status of what was answered; raises where it was refused, or where the server failed."""
    if refused or 400 <= status < 500 or (status == 500 and _is_said(answer)):
        raise RefusalError(f"{status}")
    if status >= 500:
        raise StatusError(f"{status}: {answer[:150]!r}")
    return status


def _kinds(app: App, folder: Path) -> dict[str, Maker]:
    page = asyncio.run(ask(app, "GET", "/", [(b"host", HOST)], b""))[1].decode()
    found = re.search(r"window\.gradio_config = (.*?);</script>", page, re.S)
    config = json.loads(found[1]) if found else {"components": [], "dependencies": []}
    parts = {part["id"]: part["props"].get("value") for part in config["components"]}
    names = {part["props"].get("elem_id"): part["id"] for part in config["components"]}
    field = names.get("sample-picture")
    functions = config["dependencies"]
    usual = [
        (b"host", HOST),
        (b"content-type", b"application/json"),
        (b"origin", b"http://" + HOST),
    ]

    def asked(chance: Random) -> dict[str, Any]:
        function = chance.choice(functions)
        data = [parts.get(key) for key in function["inputs"]]
        return {"data": data, "fn_index": function["id"], "session_hash": "attack"}

    def heads(chance: Random, place: Path) -> Input:
        hosts = [
            HOST,
            b"localhost",
            b"[::1",
            b"127.0.0.1:99999999",
            b"a:b:c",
            b"",
            b"\xff\xfe",
            b"evil.example",
            b"127.0.0.1@evil",
            b"[::1]:x",
            b"[" * 999,
            b"127.0.0.1:" + b"9" * 5000,
            b"127.0.0.1\0",
            b"[fe80::1%eth0]",
        ]
        origins = [
            b"http://" + HOST,
            b"null",
            b"http://[",
            b"\xff",
            b"http://evil",
            b"x" * 9000,
            b"//",
        ]
        headers = [(b"host", chance.choice(hosts)) for _ in range(chance.randrange(3))]
        headers += [(b"origin", chance.choice(origins)) for _ in range(chance.randrange(2))]
        headers += [
            (
                b"content-length",
                chance.choice([b"-1", b"9" * 5000, b"abc", b"1e9", "²".encode(), b"0"]),
            )
            for _ in range(chance.randrange(2))
        ]
        headers += [
            (b"cookie", chance.choice([b"\xff", b"a" * 9000, b"=;=;", b"session=../../x"]))
            for _ in range(chance.randrange(2))
        ]
        method = chance.choice(["GET", "POST", "HEAD", "PUT", "OPTIONS", "", "\x1b", "CONNECT"])
        return _asking(app, method, _path(chance), headers, mutations.raw(chance))

    def paths(chance: Random, place: Path) -> Input:
        return _asking(app, chance.choice(["GET", "HEAD", "POST"]), _path(chance), usual, b"{}")

    def bodies(chance: Random, place: Path) -> Input:
        content = json.dumps(asked(chance)).encode()
        how = chance.choice(
            [
                mutations.flip,
                mutations.damage,
                lambda c, b: mutations.raw(c, (b"", b"{", b"[" * 5000, b"9" * 5000)),
            ]
        )
        return _asking(app, "POST", PREDICT, usual, how(chance, content))

    def values(chance: Random, place: Path) -> Input:
        body = asked(chance)
        body["data"] = mutations.mutated(chance, body["data"] or [None])
        return _asking(app, "POST", PREDICT, usual, mutations.json_bytes(chance, body))

    def calls(chance: Random, place: Path) -> Input:
        body = mutations.mutated(chance, asked(chance))
        return _asking(app, "POST", PREDICT, usual, mutations.json_bytes(chance, body))

    def settings(chance: Random, place: Path) -> Input:
        """Text fields: settings of operators as people type them."""
        body = asked(chance)
        tricks = [
            mutations.yaml_tricks(chance, "a", "1"),
            "9" * 5000,
            "[" * 3000,
            "&a [*a]",
            mutations.ESCAPES,
            "1e999",
            "{cat: .nan}",
        ]
        body["data"] = [
            chance.choice(tricks)
            if isinstance(v, str | type(None)) and chance.random() < 0.5
            else v
            for v in body["data"]
        ]
        return _asking(app, "POST", PREDICT, usual, mutations.json_bytes(chance, body))

    def uploads(chance: Random, place: Path) -> Input:
        content = (folder / "pruned.safetensors").read_bytes()
        content = chance.choice([mutations.flip, mutations.damage, lambda c, b: mutations.raw(c)])(
            chance, content
        )
        name = chance.choice([*mutations.NAMES, "m.safetensors"]).encode("utf-8", "replace")
        head = (
            b'--x\r\nContent-Disposition: form-data; name="files"; filename="' + name + b'"\r\n\r\n'
        )
        body = head + content + b"\r\n--x--\r\n"
        if chance.random() < 0.5:
            body = mutations.damage(chance, body)
        kind = chance.choice(
            [b"multipart/form-data; boundary=x"] * 4
            + [
                b"multipart/form-data",
                b"multipart/form-data; boundary=" + b"y" * 300,
                b"text/plain",
                b"\xff",
            ]
        )
        length = chance.choice([str(len(body)).encode()] * 4 + [b"1", b"99999999"])
        headers = [(b"host", HOST), (b"content-type", kind), (b"content-length", length)]
        return _asking(app, "POST", UPLOAD, headers, body)

    def pictures(chance: Random, place: Path) -> Input:
        """Uploads to the field for pictures, each then named by the page as what to look at."""
        body = b'--x\r\nContent-Disposition: form-data; name="files"; filename="x.png"\r\n\r\n'
        body += _picture(chance) + b"\r\n--x--\r\n"
        kind = (b"content-type", b"multipart/form-data; boundary=x")
        length = (b"content-length", str(len(body)).encode())
        sent = [(b"host", HOST), VISITOR, kind, length]
        function = next(f for f in functions if [field, "upload"] in f["targets"])

        async def both() -> tuple[int, bytes, str]:
            status, answer = await ask(app, "POST", UPLOAD, sent, body)
            if status != 200:
                return status, answer, ""
            path = json.loads(answer)[0]
            data: list[Any] = [parts.get(key) for key in function["inputs"]]
            data[0] = {"path": path, "meta": {"_type": "gradio.FileData"}}
            called = {"data": data, "fn_index": function["id"], "session_hash": "attack"}
            content = json.dumps(called).encode()
            return *(await ask(app, "POST", PREDICT, [*usual, VISITOR], content)), path

        def use() -> int:
            status, answer, path = asyncio.run(asyncio.wait_for(both(), 20))
            if path and Path(path).exists():
                raise StatusError(f"{status}: the file of a picture is left: {answer[:150]!r}")
            return _judged(status, answer, refused=b"class='bad'" in answer)

        return Input(use)

    return {
        "headers": heads,
        "addresses": paths,
        "bodies": bodies,
        "calls": calls,
        "values of controls": values,
        "settings as text": settings,
        "uploads": uploads,
        "pictures": pictures,
    }


def _picture(chance: Random) -> bytes:
    """What may be dropped where a picture should be: damaged, huge by its header, or none."""
    kind = chance.choice(["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "PPM"])
    mode = chance.choice(["RGB", "L", "1"] if kind != "WEBP" else ["RGB"])
    size = chance.randrange(1, 40), chance.randrange(1, 40)
    content = io.BytesIO()
    noise = Image.frombytes("L", size, chance.randbytes(size[0] * size[1]))
    noise.convert(mode).save(content, kind)
    sound = content.getvalue()
    wide, high = (chance.choice([0, 1, 2**13, 2**16, 2**31 - 1]) for _ in range(2))
    return chance.choice(
        [
            sound,
            sound[: chance.randrange(len(sound))],
            mutations.flip(chance, sound),
            mutations.damage(chance, sound),
            _png(wide, high, zlib.compress(b"\0" * chance.choice([9, 10**6]))),
            zipped({"x.png": sound}),
            chance.choice(mutations.NAMES).encode("utf-8", "replace"),
            mutations.raw(chance),
        ]
    )


def _png(width: int, height: int, pixels: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", pixels), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content))
        + name
        + content
        + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )


def _path(chance: Random) -> str:
    known = [
        "/",
        "/assets/x",
        "/static/../../etc/passwd",
        "/gradio_api/file=/etc/passwd",
        "/theme.css",
        "/config",
        "/gradio_api/info",
        PREDICT,
        UPLOAD,
        "/gradio_api/heartbeat/x",
        "/assets/%2e%2e/%2e%2e/x",
        "/assets/" + "a/" * 500,
        "//",
        "/\0",
        "/assets/\x1b[31m",
        "/assets/" + "x" * 5000,
        "/static/img/\ud7ff",
        "/assets/\0",
        "/static/.",
        "/assets/..",
        "/manifest.json",
        "/favicon.ico",
    ]
    path = chance.choice(known)
    return (
        path
        if chance.random() < 0.7
        else path + chance.choice(mutations.NAMES).encode("utf-8", "replace").decode()
    )
