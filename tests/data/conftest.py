"""An empty cache, a web server of our own, and makers of tiny published files."""

import gzip
import hashlib
import io
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for every test, and no INTARSIA_DATA."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("INTARSIA_CACHE", str(folder))
    monkeypatch.delenv("INTARSIA_DATA", raising=False)
    return folder


@dataclass
class Site:
    """What the server serves and how it misbehaves."""

    address: str
    files: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)  # from a name to another address
    ignore_range: bool = False
    cuts: list[int] = field(default_factory=list)  # body bytes sent before hanging up, per request
    asked: list[str | None] = field(default_factory=list)  # the Range header of every request

    def serve(self, name: str, content: bytes) -> tuple[str, str]:
        """The address and the digest of `content`."""
        self.files[name] = content
        return f"{self.address}/{name}", f"sha256:{hashlib.sha256(content).hexdigest()}"


@pytest.fixture
def site() -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            here.asked.append(wanted)
            if target := here.redirects.get(self.path.lstrip("/")):
                self.send_response(302)
                self.send_header("Location", target)
                self.send_header("Content-Length", "0")
                return self.end_headers()
            body = here.files.get(self.path.lstrip("/"))
            if body is None:
                return self.send_error(404)
            start = int(wanted[6:-1]) if wanted and not here.ignore_range else 0
            if start and start >= len(body):
                return self.send_error(416)
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            self.send_header("Content-Length", str(len(body) - start))
            self.end_headers()
            self.wfile.write(body[start:][: here.cuts.pop(0) if here.cuts else None])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    here = Site(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield here
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def idx() -> Callable[[np.ndarray], bytes]:
    """Bytes of a gzipped idx file."""

    def make(array: np.ndarray) -> bytes:
        sizes = np.array(array.shape, dtype=">u4").tobytes()
        return gzip.compress(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes())

    return make


@pytest.fixture
def tarred() -> Callable[[dict[str, bytes]], bytes]:
    def make(files: dict[str, bytes]) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for name, data in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return buffer.getvalue()

    return make
