"""Connections over real sockets: who keeps the server waiting is closed, and others are served."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest

from intarsia.studio.web.studio_limits import StudioLimits

uvicorn = pytest.importorskip("uvicorn")

from intarsia.studio.web.connections import TimedProtocol  # noqa: E402

SOON = 0.3  # seconds, of every limit here
PATIENCE = 20.0
GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
LAST = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
Connect = Callable[[bytes], socket.socket]


async def app(scope: Any, receive: Any, send: Any) -> None:
    """`/read` reads the body; `/stream` sends for a while, `/hold` until the client goes.

    `/flood` sends more than a socket holds.
    """
    if scope["path"] == "/read":
        while (message := await receive()).get("more_body"):
            pass
        if message["type"] == "http.disconnect":
            return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    pieces = {"/stream": 4, "/flood": 4000, "/hold": 1}.get(scope["path"], 0)
    for _ in range(pieces):
        await send({"type": "http.response.body", "body": b"x" * 2**14, "more_body": True})
        await asyncio.sleep(SOON / 2 if scope["path"] == "/stream" else 0)
    while scope["path"] == "/hold" and (await receive())["type"] != "http.disconnect":
        pass
    await send({"type": "http.response.body", "body": b"done"})


@contextmanager
def served(**limits: Any) -> Iterator[Connect]:
    """A server with these limits; gives a function that connects, and sends."""
    quick = {"header_seconds": SOON, "body_seconds": SOON, "answer_seconds": SOON}
    limited = type("Limited", (TimedProtocol,), {"limits": StudioLimits(**{**quick, **limits})})
    settings = uvicorn.Config(
        app, http=limited, ws="none", lifespan="off", log_config=None, timeout_keep_alive=60
    )
    server = uvicorn.Server(settings)
    with ExitStack() as stack, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=lambda: server.run(sockets=[listener]))
        thread.start()

        def connect(sent: bytes) -> socket.socket:
            client = socket.create_connection(listener.getsockname(), timeout=PATIENCE)
            stack.enter_context(closing(client))
            client.sendall(sent)
            return client

        try:
            yield connect
        finally:
            server.should_exit = server.force_exit = True
            thread.join(timeout=PATIENCE)


@pytest.fixture(scope="module")
def connect() -> Iterator[Connect]:
    with served() as connecting:
        yield connecting


def answer(client: socket.socket, drip: bytes = b"") -> bytes:
    """All that comes until the connection is closed; meanwhile bytes drip."""
    client.settimeout(SOON / 6 if drip else PATIENCE)
    received, end = b"", time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            piece = client.recv(2**16)
        except TimeoutError:
            if drip:
                client.sendall(drip)
            continue
        except ConnectionError:  # closed while bytes were dripping
            return received
        if not piece:
            return received
        received += piece
    raise AssertionError("the connection is still open")


@pytest.mark.parametrize(
    ("sent", "drip"),
    [
        (b"", b""),
        (GET[:20], b""),
        (GET[:-2], b"X: y\r\n"),
        (b"POST /read HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\nhalf", b""),
        (b"POST /read HTTP/1.1\r\nHost: here\r\nContent-Length: 999\r\n\r\nhalf", b"x"),
        (b"POST /read HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
)
def test_half_a_request_is_not_waited_for(connect: Connect, sent: bytes, drip: bytes) -> None:
    began = time.monotonic()
    received = answer(connect(sent), drip)
    assert time.monotonic() - began > SOON / 2
    assert received[:13] == b"HTTP/1.1 408 " or drip  # dripping may reset it before it is read


def test_a_body_that_nobody_reads_is_not_waited_for(connect: Connect) -> None:
    client = connect(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 999\r\n\r\nhalf")
    received = answer(client, b"x")
    assert received.startswith(b"HTTP/1.1 200 ")
    assert b"408" not in received


def test_the_second_request_has_its_own_time() -> None:
    with served(header_seconds=1.2) as connect:
        client = connect(GET)
        for _ in range(3):
            time.sleep(0.45)
            client.sendall(GET)
        received = answer(client, b"G")
    assert received.count(b"HTTP/1.1 200 ") == 4
    assert b"408" not in received  # which would look like the answer to a fifth


def test_a_long_body_has_the_time_that_its_length_takes() -> None:
    with served(slowest_upload=200, body_seconds=0.01) as connect:
        body = b"x" * 800
        head = f"POST /read HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n"
        client = connect(f"{head}Connection: close\r\n\r\n".encode())
        time.sleep(0.2)
        client.sendall(body)
        assert answer(client).startswith(b"HTTP/1.1 200 ")


def test_a_stream_of_events_lasts_as_long_as_it_wants(connect: Connect) -> None:
    began = time.monotonic()
    received = answer(connect(GET.replace(b" / ", b" /stream ")))
    assert time.monotonic() - began > 1.5 * SOON
    assert received.count(b"x") == 4 * 2**14
    assert b"done" in received


def test_an_answer_that_nobody_fetches_is_given_up(connect: Connect) -> None:
    client = connect(GET.replace(b" / ", b" /flood "))
    time.sleep(6 * SOON)
    received = answer(client)
    assert received.startswith(b"HTTP/1.1 200 ")
    assert b"done" not in received


def test_of_too_many_the_one_that_is_waited_for_longest_gives_way() -> None:
    with served(connections=3, header_seconds=PATIENCE) as connect:
        waiting = []
        for _ in range(3):
            waiting.append(connect(GET[:5]))
            time.sleep(0.02)
        assert answer(connect(LAST)).startswith(b"HTTP/1.1 200 ")
        assert answer(waiting[0]).startswith(b"HTTP/1.1 408 ")
        waiting[1].sendall(LAST[5:])
        assert answer(waiting[1]).startswith(b"HTTP/1.1 200 ")


def test_where_all_are_at_work_a_new_one_is_told_to_come_later() -> None:
    with served(connections=2) as connect:
        streams = [connect(GET.replace(b" / ", b" /hold ")) for _ in range(2)]
        assert [stream.recv(12) for stream in streams] == [b"HTTP/1.1 200"] * 2
        assert answer(connect(b"")).startswith(b"HTTP/1.1 503 ")
        streams[0].close()
        began = time.monotonic()
        while b" 503 " in answer(connect(LAST)):
            assert time.monotonic() - began < PATIENCE
