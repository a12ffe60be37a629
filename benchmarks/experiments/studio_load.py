"""Does the studio answer a crowd while others keep it waiting, and are visitors kept apart?

    python benchmarks/experiments/studio_load.py

`intarsia studio` runs as a process of its own. Half-open connections are opened: a quarter of them
send nothing, a quarter half a header, a quarter half a body, and a quarter a byte of a header twice
a second. Then all clients come at once. Each loads the page, opens its stream of events, and asks
through the page's own API: for what the page shows first, then for a switch that nobody asked for
before. Times are from the connection to the last byte of the answer. Then two visitors load
different modules under one name. In the end it is counted which half-open connections were closed,
and after how long, and which streams are still open.
"""

import argparse
import asyncio
import itertools
import json
import os
import platform
import re
import resource
import socket
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save
from benchmarks.speed.studio import served
from intarsia.data import Split
from intarsia.studio.web.studio_limits import StudioLimits

HOST = "127.0.0.1"
PREDICT = "/gradio_api/run/predict"
HALF_OPEN = {
    "no byte": "",
    "half a header": "GET / HTTP/1.1\r\nHost: {host}\r\nX-Slow",
    "half a body": "POST {predict} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000\r\n\r\n{{",
    "a byte now and then": "GET / HTTP/1.1\r\nHost: {host}\r\nX-Slow: ",
}
DRIPPING = ("a byte now and then",)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="digits")
    parser.add_argument("--model", default="mlp(64)")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--half-open", type=int, default=400)
    parser.add_argument("--operator", default="sum")
    parser.add_argument("--port", type=int, default=7880)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with TemporaryDirectory() as folder:
        modules = Path(folder) / "modules"
        settings: dict[str, Any] = {"sparsity": 0.9, "epochs": 5, "learning_rate": 0.01}
        bank = ia.train(
            options.data, model=options.model, rounds=1, out=modules, progress=False, **settings
        )
        load = os.getloadavg()[0]  # before any of it is this program's doing
        with served(modules, options.port, listens) as (process, _):
            studio = Studio(options.port, options.operator)
            test = ia.load_data(options.data).test
            result = asyncio.run(measure(studio, bank, test, options.clients, options.half_open))
            result["server_cpu_seconds"] = cpu_seconds(process.pid)
    words = ["--data", options.data, "--model", options.model, "--clients", options.clients]
    words += ["--half-open", options.half_open, "--operator", options.operator]
    machine = f"CPU, {platform.machine()}, {os.cpu_count()} cores"
    about = {"data": options.data, "modules": len(bank), "operator": options.operator}
    limits = {"limits": asdict(StudioLimits()), "load_before": round(load, 1)}
    result = {**made_by(__file__, *words, machine=machine), **about, **limits, **result}
    save(options.out, "studio_load", result)
    print(json.dumps(result, indent=1))


async def measure(
    studio: "Studio", bank: ia.Bank, test: Split, clients: int, half_open: int
) -> dict[str, Any]:
    """One client after another, then all of them, with and without half-open connections."""
    switches = distinct_switches(studio.names)
    alone = [await studio.visit(next(switches)) for _ in range(20)]
    calm = await crowd(studio, switches, clients)
    for visit in calm:
        visit.leave()
    waits = [Wait(kind) for kind in itertools.islice(itertools.cycle(HALF_OPEN), half_open)]
    waiting = [asyncio.create_task(wait.hold(studio)) for wait in waits]
    while any(wait.opened is None for wait in waits):
        await asyncio.sleep(0.05)
    pressed = await crowd(studio, switches, clients)
    apart = await visitors_apart(studio, bank, test)
    streams = [visit.stream for visit in pressed if visit.stream is not None]
    still_waiting = sum(wait.closed is None for wait in waits)
    await asyncio.gather(*waiting)
    streams_open = [not stream.reader.at_eof() for stream in streams]
    for visit in pressed:
        visit.leave()
    return {
        "alone": summary(alone),
        "crowd": summary(calm),
        "crowd_and_half_open": summary(pressed),
        "half_open_when_all_were_answered": still_waiting,
        "half_open": [closings(kind, waits) for kind in HALF_OPEN],
        "streams": {"opened": len(streams), "open_at_the_end": sum(streams_open)},
        "visitors": apart,
    }


async def crowd(studio: "Studio", switches: Iterator[list[str]], clients: int) -> "list[Visit]":
    """All at once; each keeps its stream of events open."""
    visits = [studio.visit(next(switches), stream=True) for _ in range(clients)]
    return list(await asyncio.gather(*visits))


def distinct_switches(names: Sequence[str]) -> Iterator[list[str]]:
    """Sets of modules, none twice."""
    for count in range(1, len(names)):
        for gone in itertools.combinations(names, count):
            yield [name for name in names if name not in gone]


@dataclass
class Stream:
    """A stream of events that a page keeps open."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


@dataclass
class Visit:
    """What one client saw: seconds for the page and for its answer, or what failed."""

    page: float = 0.0
    first: float = 0.0
    switch: float = 0.0
    failure: str = ""
    stream: Stream | None = None

    def leave(self) -> None:
        if self.stream is not None:
            self.stream.writer.close()


@dataclass
class Wait:
    """A connection that keeps the studio waiting: when it was opened, and closed by the studio."""

    kind: str
    opened: float | None = None
    closed: float | None = None
    answer: bytes = field(default=b"", repr=False)

    async def hold(self, studio: "Studio") -> None:
        reader, writer = await asyncio.open_connection(HOST, studio.port)
        began = time.perf_counter()
        writer.write(HALF_OPEN[self.kind].format(host=studio.host, predict=PREDICT).encode())
        self.opened = began
        drip = asyncio.create_task(self._drip(writer)) if self.kind in DRIPPING else None
        limits = StudioLimits()
        longest = limits.header_seconds + limits.body_seconds + 60
        try:
            self.answer = await asyncio.wait_for(reader.read(), longest)
            self.closed = time.perf_counter() - began
        except ConnectionError:  # reset, since a byte came after it was closed
            self.closed = time.perf_counter() - began
        except TimeoutError:
            pass  # still open
        finally:
            if drip is not None:
                drip.cancel()
            writer.close()

    async def _drip(self, writer: asyncio.StreamWriter) -> None:
        while True:
            await asyncio.sleep(0.5)
            writer.write(b"x")


class Studio:
    """The page as browsers have it, and requests to it; each client has a cookie of its own."""

    def __init__(self, port: int, operator: str) -> None:
        self.port, self.host, self.operator = port, f"{HOST}:{port}", operator
        text = asyncio.run(self.ask("GET", "/"))[1].decode()
        result = re.search(r"window\.gradio_config = (.*?);</script>", text, re.S)
        assert result is not None, "the page has no configuration"
        self.config = json.loads(result[1])
        self.parts = {part["id"]: part for part in self.config["components"]}
        self.ids = {part["props"].get("elem_id"): key for key, part in self.parts.items()}
        choices = self.parts[self.ids["module-tiles"]]["props"]["choices"]
        self.names = [value for _, value in choices]
        self.pages = itertools.count()

    async def visit(self, names: list[str], stream: bool = False) -> Visit:
        """Load the page, open its stream, ask for a switch."""
        visit, page = Visit(), f"page{next(self.pages)}"
        try:
            visit.page, (head, text) = await timed(self.ask("GET", "/"))
            cookie = cookie_in(head)
            assert b"gradio_config" in text, "the page is not whole"
            if stream:
                visit.stream = await self.listen(page, cookie)
            body = self.body("module-tiles", "change", page, {})  # all on, as it opens
            visit.first, (_, content) = await timed(self.ask("POST", PREDICT, body, cookie))
            assert b"<svg" in content, "the answer has no picture"
            given = {"module-tiles": names, "operator": self.operator}
            body = self.body("module-tiles", "change", page, given)
            visit.switch, (_, content) = await timed(self.ask("POST", PREDICT, body, cookie))
            assert b"<svg" in content, "the answer has no picture"
            assert f"{len(names)} modules".encode() in content or len(names) == 1
        except (OSError, AssertionError, asyncio.IncompleteReadError) as error:
            visit.failure = f"{type(error).__name__}: {error}"
        return visit

    async def listen(self, page: str, cookie: str) -> Stream:
        """The stream of events that a page keeps open, after its first event."""
        reader, writer = await asyncio.open_connection(HOST, self.port)
        head = f"GET /gradio_api/heartbeat/{page} HTTP/1.1\r\nHost: {self.host}\r\n"
        writer.write(f"{head}Cookie: {cookie}\r\n\r\n".encode())
        await reader.readuntil(b"ALIVE")
        return Stream(reader, writer)

    def body(self, name: str, event: str, page: str, given: dict[str, Any]) -> bytes:
        """What the page sends when a control is used."""
        target = [self.ids[name], event]
        function = next(f for f in self.config["dependencies"] if target in f["targets"])
        values = {self.ids[key]: value for key, value in given.items()}
        data = [
            values.get(key, self.parts[key]["props"].get("value")) for key in function["inputs"]
        ]
        sent = {"data": data, "fn_index": function["id"], "session_hash": page}
        return json.dumps(sent).encode()

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        cookie: str = "",
        kind: str = "application/json",
    ) -> tuple[bytes, bytes]:
        """Head and body of an answer, which must be 200."""
        reader, writer = await asyncio.open_connection(HOST, self.port)
        try:
            head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}\r\nConnection: close\r\n"
            head += f"Cookie: {cookie}\r\n" if cookie else ""
            head += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n" if body else ""
            writer.write(f"{head}\r\n".encode() + body)
            received = await reader.read()
        finally:
            writer.close()
        answer, _, content = received.partition(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200"), answer[:60] + b" " + content[:200]
        return answer, content

    async def upload(self, content: bytes, cookie: str, page: str) -> bytes:
        """Send a module file and load it, as the page does."""
        disposition = 'Content-Disposition: form-data; name="files"; filename="g.safetensors"'
        body = f"--x\r\n{disposition}\r\n\r\n".encode() + content + b"\r\n--x--\r\n"
        kind = "multipart/form-data; boundary=x"
        _, paths = await self.ask("POST", "/gradio_api/upload", body, cookie, kind)
        file = {"path": json.loads(paths)[0], "meta": {"_type": "gradio.FileData"}}
        loading = self.body("load-file", "upload", page, {"load-file": file})
        return (await self.ask("POST", PREDICT, loading, cookie))[1]


async def visitors_apart(studio: Studio, bank: ia.Bank, test: Split) -> dict[str, Any]:
    """Two load different modules under one name; each gets its own, and a third sees none."""
    modules = [replace(bank[index], name="guest") for index in (0, 1)]
    cookies = [cookie_in((await studio.ask("GET", "/"))[0]) for _ in range(3)]
    with TemporaryDirectory() as folder:
        for number, module in enumerate(modules):
            path = Path(folder) / "guest.safetensors"
            module.save(path)
            said = await studio.upload(path.read_bytes(), cookies[number], f"visitor{number}")
            assert b"loaded guest" in said, said[:300]
    own = []
    for number, module in enumerate(modules):
        given = {"module-tiles": ["guest"], "operator": studio.operator}
        body = studio.body("module-tiles", "change", f"visitor{number}", given)
        _, content = await studio.ask("POST", PREDICT, body, cookies[number])
        score = ia.evaluate(ia.compose([module], studio.operator), test)
        accuracies = zip(score.catalogue, score.accuracy_per_class, strict=True)
        lines = [f"<li>{name}: {accuracy:.3f}</li>" for name, accuracy in accuracies]
        own.append(all(line in json.loads(content)["data"][0] for line in lines))
    seen = []
    for number, cookie in enumerate(cookies):
        body = studio.body("load-this", "click", f"list{number}", {})
        seen.append(b'"guest"' in (await studio.ask("POST", PREDICT, body, cookie))[1])
    return {"own_answers": sum(own), "of": len(modules), "a_third_sees_it": seen[2]}


def cookie_in(head: bytes) -> str:
    result = re.search(rb"set-cookie: ([^;]+);", head, re.I)
    assert result is not None, "the page sets no cookie"
    return result[1].decode()


async def timed(asking: Awaitable[Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = await asking
    return time.perf_counter() - began, result


def summary(visits: Sequence[Visit]) -> dict[str, Any]:
    """Median and slowest seconds of those answered, and what failed."""
    answered = [visit for visit in visits if not visit.failure]
    times: dict[str, Callable[[Visit], float]] = {
        "page": lambda visit: visit.page,
        "first": lambda visit: visit.first,
        "switch": lambda visit: visit.switch,
    }
    result: dict[str, Any] = {
        name: {
            "median": round(statistics.median(map(of, answered)), 3),
            "slowest": round(max(map(of, answered)), 3),
        }
        for name, of in times.items()
    }
    failures = sorted({visit.failure for visit in visits if visit.failure})
    return {**result, "clients": len(visits), "answered": len(answered), "failures": failures}


def closings(kind: str, waits: Sequence[Wait]) -> dict[str, Any]:
    """How many connections of a kind the studio closed, and after how many seconds."""
    mine = [wait for wait in waits if wait.kind == kind]
    seconds = [wait.closed for wait in mine if wait.closed is not None]
    return {
        "kind": kind,
        "opened": len(mine),
        "closed": len(seconds),
        "told_why": sum(b" 408 " in wait.answer for wait in mine),
        "median_seconds": round(statistics.median(seconds), 1) if seconds else None,
        "slowest_seconds": round(max(seconds), 1) if seconds else None,
    }


def listens(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=5):
            return True
    except OSError:
        return False


def cpu_seconds(pid: int) -> float | None:
    """What the studio's process used so far, where the system tells."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return round((int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK"), 1)


if __name__ == "__main__":
    main()
