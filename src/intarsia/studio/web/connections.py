"""Connections that end: whoever keeps the studio waiting is not waited for.

uvicorn closes a connection that is idle between two requests, and none that never sends its first,
or sends it byte by byte, or fetches no answer. Streams of events last as long as their page.
"""

import asyncio
from time import monotonic
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from intarsia.studio.web.studio_limits import StudioLimits

LARGEST_HEADER = 2**15  # bytes of a request's line and headers
CLOSED = (
    "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {length}\r\n"
    "connection: close\r\n\r\n{text}"
)
LATE = ("408 Request Timeout", "The request took too long to arrive.\n")
FULL = ("503 Service Unavailable", "The studio has too many connections: try again later.\n")


class TimedProtocol(H11Protocol):
    """One connection, with a deadline for whatever it is waiting for."""

    limits: ClassVar[StudioLimits] = StudioLimits()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._waits_for: object = None
        self._since = 0.0
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._watch()
        if len(self.connections) > self.limits.connections:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._deadline, self._unread):
            if timer is not None:
                timer.cancel()

    def pause_writing(self) -> None:
        """The client fetches nothing: it has a while, and not for ever."""
        super().pause_writing()
        self._unread = self.loop.call_later(self.limits.answer_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    @property
    def is_waiting(self) -> bool:
        """Whether it is the client's turn: a request, or its body, is not there yet."""
        return self._waits_for in (h11.IDLE, h11.SEND_BODY)

    def _watch(self) -> None:
        """Set a deadline when something new is waited for; bytes that drip do not move it."""
        state = self.conn.their_state
        if state is self._waits_for:
            return
        self._waits_for, self._since = state, monotonic()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self.is_waiting:
            seconds = self._seconds_for_body() if state is h11.SEND_BODY else None
            self._deadline = self.loop.call_later(
                seconds or self.limits.header_seconds, self._close_with, *LATE
            )

    def _seconds_for_body(self) -> float:
        given = dict(self.headers).get(b"content-length", b"0")
        length = min(int(given) if given.isdigit() else 0, self.limits.file_bytes)
        return self.limits.body_seconds + length / self.limits.slowest_upload

    def _make_room(self) -> None:
        """Close the connection that has been waited for longest; this one, if all are at work."""
        others = [
            other
            for other in self.connections
            if isinstance(other, TimedProtocol)
            and other is not self
            and other.is_waiting
            and not other.transport.is_closing()
        ]
        if others:
            min(others, key=lambda other: other._since)._close_with(*LATE)
        else:
            self._close_with(*FULL)

    def _close_with(self, status: str, text: str) -> None:
        """Close it; silently after an answer, lest this is taken for that to the next request."""
        if self.transport.is_closing():
            return
        if self.cycle is None or not self.cycle.response_started:
            words = CLOSED.format(status=status, length=len(text), text=text)
            self.transport.write(words.encode())
        self.transport.close()
