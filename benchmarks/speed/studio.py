"""How long does the studio take to answer a switch?

    python benchmarks/speed/studio.py

`intarsia studio` serves the ten sparse modules of experiments/banks.py, and is asked over HTTP as
its page asks it: each request switches modules on or off in a way that was not asked for before,
and the answer holds all that the page shows. Times are from the request to the last byte of the
answer, so that they hold the network's work, the pictures and Gradio, and not the browser's
drawing. An operator's first answer, for which it may have to look at samples, is told apart; so is
a switch back to what was on before.
"""

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import chain, combinations, islice
from pathlib import Path
from typing import Any

from benchmarks.experiments.banks import FOLDER, bank_of
from benchmarks.record import RESULTS, made_by, save

OPERATORS = (
    *("inlay", "logits", "logit_mean", "probabilities", "own"),
    *("sum", "mean", "task_arithmetic", "ties", "dare", "fisher", "regmean"),
)
LIMIT = 0.5  # seconds
STARTS_WITHIN = 300  # seconds
MAIN = "from intarsia.cli.app import main; main()"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--model", default="shallow")
    parser.add_argument("--kind", default="sparse")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--operators", nargs="+", default=list(OPERATORS))
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--port", type=int, default=7879)
    parser.add_argument("--banks", type=Path, default=FOLDER)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    bank_of(options.data, options.model, options.kind, options.seeds, options.banks)
    folder = options.banks / f"{options.data}-{options.model}-{options.kind}"
    seed = str(options.seeds[0])
    with served(folder, options.port, answers, "--seed", seed) as (_, seconds):
        page = Page(options.port)
        result = {
            **made_by(
                __file__,
                *("--data", options.data, "--model", options.model, "--kind", options.kind),
                *("--repeats", options.repeats, "--operators", *options.operators),
                machine=f"CPU, {platform.machine()}, {os.cpu_count()} cores",
            ),
            "data": options.data,
            "model": options.model,
            "kind": options.kind,
            "modules": len(page.names),
            "limit": LIMIT,
            "repeats": options.repeats,
            "seconds_to_start": round(seconds, 2),
            "rows": [],
        }
        for operator in options.operators:
            result["rows"].append(timed(page, operator, options.repeats))
            print(json.dumps(result["rows"][-1]), flush=True)
    save(options.out, "studio", result)


def timed(page: "Page", operator: str, repeats: int) -> dict[str, Any]:
    """One operator: the first answer, then switches that are new, then those switched back."""
    first = page.switch(page.names, operator)
    # All without one module, without two, without three, in turn: no set comes twice.
    gone = chain.from_iterable(combinations(page.names, k) for k in range(1, len(page.names)))
    sets = [[n for n in page.names if n not in out] for out in islice(gone, repeats)]
    new = [page.switch(names, operator) for names in sets]
    again = [page.switch(names, operator) for names in sets]
    return {
        "operator": operator,
        "first": round(first, 4),
        "median": round(statistics.median(new), 4),
        "worst": round(max(new), 4),
        "again": round(statistics.median(again), 4),
        "within_limit": sum(seconds < LIMIT for seconds in new),
        "of": len(new),
    }


class Page:
    """The page as a browser has it: configuration, cookie, and one connection that is kept."""

    def __init__(self, port: int) -> None:
        self.connection = HTTPConnection("127.0.0.1", port, timeout=300)
        self.connection.request("GET", "/")
        answer = self.connection.getresponse()
        self.cookie = (answer.headers["Set-Cookie"] or "").partition(";")[0]
        text = answer.read().decode()
        result = re.search(r"window\.gradio_config = (.*?);</script>", text, re.S)
        assert result is not None, "the page has no configuration"
        config = json.loads(result[1])
        self.parts = {part["id"]: part for part in config["components"]}
        by_name = {part["props"].get("elem_id"): key for key, part in self.parts.items()}
        self.tiles, self.operator = by_name["module-tiles"], by_name["operator"]
        self.function = next(
            f for f in config["dependencies"] if [self.tiles, "change"] in f["targets"]
        )
        self.names = [value for _, value in self.parts[self.tiles]["props"]["choices"]]

    def switch(self, names: list[str], operator: str) -> float:
        """Seconds from the request to its whole answer, which must hold a picture."""
        given = {self.tiles: names, self.operator: operator}
        data = [
            given.get(key, self.parts[key]["props"].get("value")) for key in self.function["inputs"]
        ]
        body = json.dumps(
            {"data": data, "fn_index": self.function["id"], "session_hash": "benchmark"}
        )
        began = time.perf_counter()
        headers = {"Content-Type": "application/json", "Cookie": self.cookie}
        self.connection.request("POST", "/gradio_api/run/predict", body, headers)
        answer = self.connection.getresponse()
        content = answer.read()
        seconds = time.perf_counter() - began
        assert answer.status == 200, content[:300]
        assert b"<svg" in content, "the answer has no picture"
        return seconds


@contextmanager
def served(
    folder: Path, port: int, ready: Callable[[int], bool], *options: str
) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """The studio as a process of its own; gives it and the seconds until the port is ready."""
    words = ["studio", str(folder), "--port", str(port), "--no-open", *options]
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", MAIN, *words])
    try:
        while not ready(port):
            assert process.poll() is None, "the studio stopped"
            assert time.perf_counter() - began < STARTS_WITHIN, "the studio does not answer"
            time.sleep(0.1)
        yield process, time.perf_counter() - began
    finally:
        process.terminate()
        process.wait(timeout=60)


def answers(port: int) -> bool:
    try:
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/theme.css")
        return connection.getresponse().status == 200
    except OSError:
        return False


if __name__ == "__main__":
    main()
