"""Serve the page: on the loopback by default, with a temporary folder for uploads."""

import logging
import os
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from intarsia.errors import FileError, RecipeError
from intarsia.studio.guard import Guard
from intarsia.studio.session import Session

HOST, PORT = "127.0.0.1", 7878
SETTINGS = {
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
    session: Session,
    title: str,
    host: str = HOST,
    port: int | None = None,
    *,
    open_browser: bool = True,
    say: Callable[[str], None] = print,
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve until stopped; the port is by default PORT, or a free one where that is taken.

    `ready` is called with the address once the socket listens.
    """
    import uvicorn

    class Server(uvicorn.Server):
        """A server that logs nothing about pages that are open when it stops."""

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)
            await super().shutdown(sockets)

    with listening(host, port) as listener, application(session, title, host) as app:
        address = address_of(host, listener)
        settings = uvicorn.Config(
            app, log_level="warning", lifespan="on", timeout_graceful_shutdown=1
        )
        server = Server(settings)
        say(f"the studio is at {address} (Ctrl-C stops it)")
        ready(address)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        if open_browser:  # in a thread, since it waits for the server's first answer
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        try:
            server.run(sockets=[listener])
        except KeyboardInterrupt:  # the signal, which the server lets through once it has stopped
            say("\nstopped")


@contextmanager
def application(session: Session, title: str, host: str = HOST) -> Iterator[Guard]:
    """The guarded page as an ASGI application; its uploads are deleted afterwards."""
    check_extra()
    with (
        TemporaryDirectory(prefix="intarsia-studio-") as folder,
        _environment({**SETTINGS, "GRADIO_TEMP_DIR": folder}),
    ):
        from intarsia.studio.ui.gradio_app import build, mount

        uploads = Path(folder)
        yield Guard(mount(build(session, title, uploads)), host, uploads)


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


def address_of(host: str, listener: socket.socket) -> str:
    """The address for a browser on this machine."""
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
    name = everywhere.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{name}:{listener.getsockname()[1]}/"


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


@contextmanager
def _environment(settings: dict[str, str]) -> Iterator[None]:
    """Gradio reads these when it is imported, when a page is built, and when a file arrives."""
    before = {key: os.environ.get(key) for key in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value
