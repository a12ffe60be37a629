"""Serve the page: on the loopback by default, with a temporary folder for uploads."""

import logging
import os
import re
import secrets
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.util import find_spec

from intarsia.errors import FileError, RecipeError
from intarsia.process import environment
from intarsia.studio.patterns.pattern_session import PatternSession
from intarsia.studio.session import Session
from intarsia.studio.visitors import Visitors
from intarsia.studio.web.guard import (
    HOST,
    LOCAL,
    PORT,
    Guard,
    NoUploads,
    StudioAddress,
    is_loopback,
)
from intarsia.studio.web.studio_limits import StudioLimits
from intarsia.studio.web.upload_folder import upload_folder

TOKEN = "INTARSIA_STUDIO_TOKEN"  # not an option: other users of a machine see those
TOKEN_SHAPE = re.compile(r"[A-Za-z0-9_-]{16,128}")
WARNING = (
    "whoever has this address, token included, can use the page and see all that it shows; it is "
    "not encrypted, so that everyone on the way can read it: give it to people you trust, in a "
    "network you trust"
)
STOPPING = {"SIGTERM", "SIGHUP"}
OTHER_FILES = 100  # of this process, beside connections
SETTINGS = {  # read when Gradio is imported, when a page is built, and when a file arrives
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
}


def check_extra() -> None:
    """Raise an error that says what to install, if Gradio is missing."""
    if find_spec("gradio") is None:
        raise FileError(
            "the studio needs the package gradio: install it with pip install 'intarsia[studio]'"
        )


def serve(
    session: Session | PatternSession,
    title: str,
    host: str = HOST,
    port: int | None = None,
    *,
    limits: StudioLimits | None = None,
    open_browser: bool = True,
    say: Callable[[str], None] = print,
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve until stopped; the port is by default PORT, or a free one where that is taken.

    `ready` is called with the address once the socket listens. Beyond the loopback, and where
    INTARSIA_STUDIO_TOKEN is set, the address holds a token without which nothing is answered.
    """
    import uvicorn

    from intarsia.studio.web.connections import LARGEST_HEADER, TimedProtocol

    class Server(uvicorn.Server):
        """A server that logs nothing about pages that are open when it stops."""

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)
            await super().shutdown(sockets)

    limits = within_system(limits or StudioLimits())
    token = token_for(host)
    with ExitStack() as stack:
        listener = stack.enter_context(listening(host, port))
        address = StudioAddress(host, listener.getsockname()[1], token)
        app = stack.enter_context(application(session, title, address, limits))
        settings = uvicorn.Config(
            app,
            http=type("LimitedProtocol", (TimedProtocol,), {"limits": limits}),
            ws="none",
            h11_max_incomplete_event_size=LARGEST_HEADER,
            log_level="error",  # not the warnings: a line for every malformed request
            lifespan="on",
            timeout_graceful_shutdown=1,
        )
        server = Server(settings)
        say(f"the studio is at {address.url} (Ctrl-C stops it)")
        for remark in [] if is_loopback(host) else [WARNING]:
            say(remark)
        ready(address.url)
        for name in STOPPING & {known.name for known in signal.Signals}:
            signal.signal(signal.Signals[name], signal.default_int_handler)
        if open_browser:  # in a thread, since it waits for the server's first answer
            threading.Thread(target=webbrowser.open, args=(address.url,), daemon=True).start()
        try:
            server.run(sockets=[listener])
        except KeyboardInterrupt:  # the signal, which the server lets through once it has stopped
            say("\nstopped")


@contextmanager
def application(
    session: Session | PatternSession,
    title: str,
    address: StudioAddress = LOCAL,
    limits: StudioLimits | None = None,
) -> Iterator[Guard]:
    """The guarded page as an ASGI application; its uploads are deleted afterwards.

    What studios that were killed left of theirs is deleted first.
    """
    check_extra()
    with (
        upload_folder() as folder,
        environment({**SETTINGS, "GRADIO_TEMP_DIR": str(folder)}),
    ):
        from intarsia.studio.ui.gradio_app import build, mount

        if isinstance(session, PatternSession):
            from intarsia.studio.patterns.pattern_page import build_patterns

            files = NoUploads(limits)
            yield Guard(mount(build_patterns(session), files.limits), files, address)
            return
        visitors = Visitors(session, folder, limits)
        yield Guard(mount(build(visitors, title), visitors.limits), visitors, address)


def token_for(host: str) -> str | None:
    """The token that the address needs: the user's own, or a new one beyond the loopback."""
    own = os.environ.get(TOKEN)
    if own is None:
        return None if is_loopback(host) else secrets.token_urlsafe(24)
    if not TOKEN_SHAPE.fullmatch(own):
        raise RecipeError(
            f"{TOKEN} is not a token: expected 16 to 128 letters, digits, - or _, such as "
            "python -c 'import secrets; print(secrets.token_urlsafe(24))' prints"
        )
    return own


def within_system(limits: StudioLimits) -> StudioLimits:
    """No more connections than this process may have open files, less some for all else."""
    try:
        import resource
    except ImportError:  # Windows
        return limits
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed == resource.RLIM_INFINITY:
        return limits
    return replace(limits, connections=max(1, min(limits.connections, allowed - OTHER_FILES)))


@contextmanager
def listening(host: str, port: int | None) -> Iterator[socket.socket]:
    """A socket that listens already: no one else gets the port, and early requests wait."""
    wanted = [PORT, 0] if port is None else [port]
    for number in wanted:
        try:
            listener = _bound(host, number)
            break
        except OSError as error:
            reason = error.strerror or str(error)
    else:
        raise RecipeError(
            f"the studio cannot listen at {host}:{wanted[-1]} ({reason}): give another --port "
            "or --host, or leave them out"
        )
    with listener:
        yield listener


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, so that asyncio sends small answers at once instead of waiting 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except (OSError, OverflowError) as error:
        listener.close()
        raise error if isinstance(error, OSError) else OSError(str(error)) from error
    return listener
