"""The page as it is served: filled, switched, given files, and closed to all else."""

import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from typer.testing import CliRunner

import intarsia as ia
from intarsia.cli.app import app as commands
from intarsia.errors import RecipeError
from intarsia.studio import Session
from intarsia.studio.web import server as serve
from intarsia.studio.web.guard import StudioAddress
from intarsia.studio.web.studio_limits import StudioLimits

pytestmark = pytest.mark.skipif(find_spec("gradio") is None, reason="needs the extra studio")


class Client:
    """A browser without a screen: its cookie, its page's configuration, and its requests."""

    def __init__(self, port: int, page: str = "test") -> None:
        self.port, self.page = port, page
        self.cookie: str | None = None
        status, body = self.ask("GET", "/")
        assert status == 200
        self.text = body.decode()
        result = re.search(r"window\.gradio_config = (.*?);</script>", self.text, re.S)
        assert result is not None
        self.config = json.loads(result[1])
        self.parts = {part["id"]: part for part in self.config["components"]}
        self.names = {part["props"].get("elem_id"): key for key, part in self.parts.items()}

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        if self.cookie:
            headers["Cookie"] = self.cookie
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            if given := answer.headers["Set-Cookie"]:
                self.cookie = given.partition(";")[0]
            return answer.status, answer.read()

    def use(self, name: str, event: str, **values: Any) -> dict[str, Any]:
        """What a control's event fills, by the name of the place."""
        status, answer = self.post(name, event, **values)
        assert status == 200, answer
        outputs = self._function(name, event)["outputs"]
        places = [self.parts[key]["props"].get("elem_id") for key in outputs]
        return dict(zip(places, json.loads(answer)["data"], strict=True))

    def post(self, name: str, event: str, **values: Any) -> tuple[int, bytes]:
        result = self._function(name, event)
        given = {self.names[key.replace("_", "-")]: value for key, value in values.items()}
        data = [given.get(key, self.parts[key]["props"].get("value")) for key in result["inputs"]]
        body = json.dumps({"data": data, "fn_index": result["id"], "session_hash": self.page})
        kind = {"Content-Type": "application/json"}
        return self.ask("POST", "/gradio_api/run/predict", body, **kind)

    def _function(self, name: str, event: str) -> dict[str, Any]:
        target = [self.names[name], event]
        return next(f for f in self.config["dependencies"] if target in f["targets"])

    def upload(self, name: str, content: bytes) -> str:
        head = f'--x\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'
        body = head.encode() + content + b"\r\n--x--\r\n"
        kind = {"Content-Type": "multipart/form-data; boundary=x"}
        status, answer = self.ask("POST", "/gradio_api/upload", body, **kind)
        assert status == 200, answer
        return json.loads(answer)[0]


def arrived(path: str) -> dict[str, Any]:
    """A file as the page tells of it."""
    return {"path": path, "meta": {"_type": "gradio.FileData"}}


@pytest.fixture(scope="module")
def client(studio_address: str, uploaded: list[Path]) -> Client:
    """Of the studio in its own process; one file is left there, to be deleted at its end."""
    port = urlsplit(studio_address).port
    assert port is not None
    client = Client(port)
    uploaded.append(Path(client.upload("left.safetensors", b"unread")))
    assert uploaded[-1].exists()
    return client


@pytest.fixture(scope="module")
def folder(demo_folder: Path) -> Path:
    """What the studio was given."""
    return demo_folder / "modules"


@pytest.fixture(scope="module")
def bank(folder: Path) -> ia.Bank:
    return ia.Bank.load(folder)


def test_the_page_names_no_other_host(client: Client) -> None:
    addresses = set(re.findall(r"https?://([^/\"'\\\s<>]+)", client.text))
    assert addresses <= {f"127.0.0.1:{client.port}"}
    status, theme = client.ask("GET", "/theme.css")
    assert status == 200
    assert not re.search(rb"url\([\"']?https?:|@import|fonts\.", theme)
    assert client.config["analytics_enabled"] is False
    for name in (
        "module-tiles", "operator", "confusion", "accuracy", "entropy", "sample-draw",
        "sample-number", "module-answers", "joined-answer", "take-out", "path-from", "path-to",
        "path-figure", "compatibility", "load-file", "message",
    ):  # fmt: skip
        assert name in client.names


def test_a_switch_fills_the_page(client: Client, bank: ia.Bank, digits: ia.Data) -> None:
    session = Session(bank, digits)
    result = client.use("module-tiles", "change", module_tiles=["0", "3"], operator="inlay")
    score = session.score(["0", "3"], "inlay")
    assert f"{score.accuracy:.4f}" in result["accuracy"]
    assert "2 modules, inlay" in result["confusion"]
    assert result["module-answers"].count("class='answer'") == 2
    off = client.use("module-tiles", "change", module_tiles=[])
    assert "no module is on" in off["message"]
    values = {"module_tiles": ["0"], "operator": "ties", "setting_ties_density": "9"}
    assert "density is 9.0" in client.use("module-tiles", "change", **values)["message"]


def test_files_of_the_disk_are_not_served(client: Client, folder: Path) -> None:
    inside = folder / "bank.json"
    for path in ("/etc/hostname", __file__, str(inside)):
        for route in ("/gradio_api/file=", "/file=", "/gradio_api/file/", "/static/../"):
            assert client.ask("GET", f"{route}{quote(path)}")[0] in (403, 404)
    assert client.ask("GET", "/static/..%2f..%2f__init__.py")[0] in (403, 404)
    assert client.ask("GET", "/", Host="evil.example")[0] == 421
    assert client.ask("POST", "/gradio_api/upload", b"", Origin="http://evil.example")[0] == 403


def test_an_upload_is_checked_told_and_deleted(
    client: Client, bank: ia.Bank, tmp_path: Path
) -> None:
    path = client.upload("bad.safetensors", b"no module")
    assert Path(path).exists()
    result = client.use("load-file", "upload", load_file=arrived(path))
    assert "bad.safetensors: is not a safetensors file" in result["message"]
    assert "Traceback" not in result["message"]
    assert not Path(path).exists()

    replace(bank["3"], name="mine").save(tmp_path / "mine.safetensors")
    path = client.upload("mine.safetensors", (tmp_path / "mine.safetensors").read_bytes())
    result = client.use("load-file", "upload", load_file=arrived(path))
    assert "loaded mine; switch it on" in result["message"]
    assert [name for _, name in result["module-tiles"]["choices"]][-1] == "mine"
    assert not Path(path).exists()

    result = client.use("load-file", "upload", load_file=None)
    assert "did not arrive" in result["message"]
    assert "no file is chosen" in client.use("load-this", "click")["message"]
    assert "removed mine" in client.use("loaded-remove", "click", loaded_module="mine")["message"]
    assert "no module is chosen" in client.use("loaded-remove", "click")["message"]


def test_two_visitors_do_not_see_each_others_modules(
    client: Client, bank: ia.Bank, digits: ia.Data, tmp_path: Path
) -> None:
    others = [Client(client.port, page) for page in ("one", "two")]
    assert len({client.cookie, *(other.cookie for other in others)}) == 3
    for other, name in zip(others, ("3", "8"), strict=True):  # another module by the same name
        file = tmp_path / "guest.safetensors"
        replace(bank[name], name="guest").save(file)
        path = other.upload(file.name, file.read_bytes())
        for stranger in {client, *others} - {other}:
            assert stranger.post("load-file", "upload", load_file=arrived(path))[0] == 400
        other.use("load-file", "upload", load_file=arrived(path))
    for other, name in zip(others, ("3", "8"), strict=True):
        result = other.use("module-tiles", "change", module_tiles=["guest"], operator="sum")
        score = ia.evaluate(ia.compose([bank[name]], "sum"), digits.test)
        assert f"{score.accuracy:.4f}" in result["accuracy"]
        assert f"<li>{name}: {score.accuracy:.3f}</li>" in result["confusion"]
    assert "guest" not in json.dumps(client.use("load-this", "click")["module-tiles"])


def test_a_file_that_did_not_arrive_is_not_read(client: Client, folder: Path) -> None:
    inside = str(folder / "0.safetensors")
    for path in (inside, __file__, f"http://127.0.0.1:{client.port}/theme.css"):
        assert client.post("load-file", "upload", load_file=arrived(path))[0] == 400
        assert client.post("module-tiles", "change", module_tiles=arrived(path))[0] == 400


def test_a_taken_port_gives_way_to_a_free_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        monkeypatch.setattr(serve, "PORT", taken)
        with serve.listening("127.0.0.1", None) as listener:
            assert listener.getsockname()[1] != taken
        with (
            pytest.raises(RecipeError, match=rf"cannot listen at 127.0.0.1:{taken} .*--port"),
            serve.listening("127.0.0.1", taken),
        ):
            pass
    with pytest.raises(RecipeError, match="cannot listen"), serve.listening("192.0.2.1", None):
        pass


def test_the_command_opens_a_bank_and_says_where(
    bank_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(serve, "serve", lambda *args, **more: given.append((args, more)))
    words = ["studio", str(bank_folder), "--no-open", "--port", "9000", "--rows", "30"]
    run = CliRunner().invoke(commands, words)
    assert run.exit_code == 0, run.output
    (session, title, host, port), more = given[0]
    assert (title, host, port, more["open_browser"]) == ("bank", "127.0.0.1", 9000, False)
    assert len(session.test) == 30
    assert session.folders == (bank_folder.resolve(),)
    run = CliRunner().invoke(commands, [*words, "--limit", "visitor_modules=8"])
    assert given[1][1]["limits"].visitor_modules == 8
    run = CliRunner().invoke(commands, [*words, "--limit", "modules=8"])
    assert (run.exit_code, len(given)) == (1, 2)
    assert "--limit has no setting 'modules'" in run.stderr


def test_beyond_the_loopback_there_is_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(serve.TOKEN, raising=False)
    assert serve.token_for("127.0.0.1") is None
    made = {serve.token_for("0.0.0.0") for _ in range(3)}
    assert len(made) == 3
    assert all(serve.TOKEN_SHAPE.fullmatch(str(token)) for token in made)
    monkeypatch.setenv(serve.TOKEN, "a-token-of-my-own")
    assert serve.token_for("0.0.0.0") == serve.token_for("127.0.0.1") == "a-token-of-my-own"
    for bad in ("", "short", "a token of my own", "a-token-of-my-own&x"):
        monkeypatch.setenv(serve.TOKEN, bad)
        with pytest.raises(RecipeError, match=f"{serve.TOKEN} is not a token: expected"):
            serve.token_for("127.0.0.1")


@pytest.mark.parametrize(("host", "remarks"), [("127.0.0.1", 0), ("0.0.0.0", 1)])
def test_the_token_is_printed_once_with_a_warning(
    host: str, remarks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is served: what would be is looked at."""
    served: list[Any] = []

    @contextmanager
    def application(*args: Any, **more: Any) -> Iterator[Any]:
        served.extend(arg for arg in args if isinstance(arg, StudioAddress))
        yield None

    monkeypatch.delenv(serve.TOKEN, raising=False)
    monkeypatch.setattr(serve, "application", application)
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: served.append(server.config))
    monkeypatch.setattr("signal.signal", lambda *args: None)
    said: list[str] = []
    limits = StudioLimits(connections=10**9, header_seconds=7)
    how: Any = {"open_browser": False, "limits": limits, "say": said.append}
    serve.serve(None, "x", host, **how)  # type: ignore[arg-type]
    given, config = served
    address, *warnings = said
    assert (given.token is not None, len(warnings)) == (bool(remarks), remarks)
    assert "".join(said).count("?token=") == remarks
    assert f"?token={given.token}" in address or not remarks
    assert all("not encrypted" in words for words in warnings)
    assert config.http.limits.header_seconds == 7
    assert config.http.limits.connections < 10**9  # than files may be open
    assert f":{given.port}/" in address


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_a_studio_that_nobody_uses_sleeps(
    client: Client, studio_process: subprocess.Popen[str]
) -> None:
    """Gradio alone would wake hundreds of times in this while."""

    def woken() -> int:
        status = Path(f"/proc/{studio_process.pid}/status").read_text()
        return int(re.findall(r"voluntary_ctxt_switches:\s+(\d+)", status)[0])

    before = woken()
    time.sleep(0.4)
    assert woken() - before < 20


def test_the_missing_extra_is_named(bank_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "find_spec", lambda name: None)
    run = CliRunner().invoke(commands, ["studio", str(bank_folder)])
    assert run.exit_code == 1
    assert "pip install 'intarsia[studio]'" in run.stderr
