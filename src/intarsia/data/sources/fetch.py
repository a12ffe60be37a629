"""Downloads that end whole or not at all: resumed, verified by digest, put in place by a rename."""

import hashlib
import re
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any, BinaryIO
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from intarsia.errors import DataError
from intarsia.process import BYTES, Advance, progress_bar

_TRIES = 4  # how often a broken transfer is resumed before we give up
_CHUNK = 1 << 18
_TIMEOUT = 30.0  # seconds without a byte
_FORGEABLE = ("md5", "sha1")  # digests that another file can be made to have


class _BrokenError(Exception):
    """The transfer ended early; what has arrived is kept and the rest can be asked for."""


def fetch(address: str, path: Path, digest: str, progress: bool | None = None) -> None:
    """Download `address` to `path`, which appears only whole and with the right digest.

    `digest` is "algorithm:hex". A broken transfer is kept in `path`.part, from which a later call
    goes on; a whole one with another digest is removed. `progress` None: a bar on a terminal only.
    An address without https, also one that a server redirects to, needs a digest that nobody can
    forge: not MD5 or SHA-1.
    """
    _check_digest(address, digest)
    _check_address(address, digest)
    part = path.with_name(path.name + ".part")
    reason: Exception | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(_TRIES):
            resumed = part.exists() and part.stat().st_size > 0
            try:
                if not (resumed and matches(part, digest)):
                    _transfer(address, part, digest, progress)
            except _BrokenError as error:
                reason = error
                continue
            if matches(part, digest):
                part.replace(path)  # its digest is asked for again wherever it is read
                return
            part.unlink()
            reason = DataError(f"it was altered (its digest is not {digest}); nothing was kept")
            if not resumed:  # else the part may have been to blame: start afresh
                break
    except OSError as error:
        raise DataError(f"{address} cannot be fetched to {path}: {error}") from error
    raise DataError(f"{address} cannot be fetched: {reason}") from reason


def matches(path: Path, digest: str) -> bool:
    """Whether the file has this digest ("algorithm:hex")."""
    algorithm, _, expected = digest.partition(":")
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest() == expected


def _check_digest(address: str, digest: str) -> None:
    algorithm, _, expected = str(digest).partition(":")
    known = algorithm in hashlib.algorithms_guaranteed and not algorithm.startswith("shake")
    length = 2 * hashlib.new(algorithm).digest_size if known else 0
    if not known or not re.fullmatch(rf"[0-9a-f]{{{length}}}", expected):
        raise DataError(
            f"{address} is not fetched: its digest {digest!r} is not one; give it as "
            "'sha256:' and 64 hexadecimal digits in small letters"
        )


def _check_address(address: str, digest: str) -> None:
    scheme = urlsplit(address).scheme.lower()
    if scheme == "https" or (scheme == "http" and digest.partition(":")[0] not in _FORGEABLE):
        return
    raise DataError(
        f"{address} is not fetched: only https is, or plain http with a digest that cannot be "
        "forged; give an address with https, or a digest that begins with 'sha256:'"
    )


class _Redirects(HTTPRedirectHandler):
    """Follows a server only to where `fetch` would go itself."""

    def __init__(self, digest: str) -> None:
        self.digest = digest

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        _check_address(newurl, self.digest)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _transfer(address: str, part: Path, digest: str, progress: bool | None) -> None:
    offset = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "intarsia"} | ({"Range": f"bytes={offset}-"} if offset else {})
    try:
        opener, request = build_opener(_Redirects(digest)), Request(address, headers=headers)
        with opener.open(request, timeout=_TIMEOUT) as response:
            if offset and not _continues(response.headers.get("Content-Range"), offset):
                offset = 0  # the server sends the whole file whatever was asked
            length = response.headers.get("Content-Length")
            total = offset + int(length) if length and length.isdigit() else None
            with (
                part.open("ab" if offset else "wb") as file,
                progress_bar(part.stem, total, progress, unit=BYTES, done=offset) as advance,
            ):
                _copy(response, file, advance)
    except HTTPError as error:
        error.close()
        if error.code == 416:  # the part is longer than the file: it is of something else
            part.unlink(missing_ok=True)
            raise _BrokenError(f"the server cannot resume at byte {offset}") from error
        raise
    except HTTPException as error:
        raise _BrokenError(str(error) or type(error).__name__) from error
    size = part.stat().st_size
    if total is not None and size != total:
        if size > total:
            part.unlink()
        raise _BrokenError(f"the transfer broke off at {size} of {total} bytes")


def _continues(content_range: str | None, offset: int) -> bool:
    """Whether the answer starts where asked; one that sends the whole file names no range."""
    return re.match(rf"bytes {offset}-", content_range or "") is not None


def _copy(response: BinaryIO, file: BinaryIO, advance: Advance) -> None:
    while True:
        try:
            chunk = response.read(_CHUNK)
        except OSError as error:
            raise _BrokenError(f"the connection broke: {error}") from error
        if not chunk:
            return
        file.write(chunk)
        advance(len(chunk))
