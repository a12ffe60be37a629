"""A page of the studio as it is served, used without a browser."""

import asyncio
import json
import re
from typing import Any


class Page:
    """One visitor's page, without a browser."""

    def __init__(self, app: Any, runner: asyncio.Runner) -> None:
        import httpx

        self.client = httpx
        self.app, self.runner, self.cookies = app, runner, httpx.Cookies()
        text = self.ask("GET", "/").text
        found = re.search(r"window\.gradio_config = (.*?);</script>", text, re.S)
        assert found is not None
        self.config = json.loads(found[1])
        self.parts = {part["id"]: part["props"] for part in self.config["components"]}
        self.names = {props.get("elem_id"): key for key, props in self.parts.items()}

    def ask(self, method: str, path: str, **given: Any) -> Any:
        async def asking() -> Any:
            transport, base = self.client.ASGITransport(self.app), "http://127.0.0.1:7878"
            how = {"transport": transport, "base_url": base, "cookies": self.cookies}
            async with self.client.AsyncClient(**how) as client:
                answer = await client.request(method, path, **given)
                self.cookies = client.cookies
                return answer

        return self.runner.run(asking())

    def upload(self, content: bytes, name: str = "mine.png") -> dict[str, Any]:
        answer = self.ask("POST", "/gradio_api/upload", files={"files": (name, content)})
        return {"path": answer.json()[0], "meta": {"_type": "gradio.FileData"}}

    def post(self, name: str, event: str, **values: Any) -> Any:
        target = [self.names[name], event]
        function = next(f for f in self.config["dependencies"] if target in f["targets"])
        given = {self.names[key.replace("_", "-")]: value for key, value in values.items()}
        data = [given.get(key, self.parts[key].get("value")) for key in function["inputs"]]
        body = {"data": data, "fn_index": function["id"], "session_hash": "page"}
        answer = self.ask("POST", "/gradio_api/run/predict", json=body)
        if answer.status_code != 200:
            return answer.status_code
        places = [self.parts[key].get("elem_id") for key in function["outputs"]]
        return dict(zip(places, answer.json()["data"], strict=True))
