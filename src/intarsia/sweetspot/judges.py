"""A judge that asks a vision-language model whether a picture still shows what it should.

Any function of a picture that returns True or False is a judge. This one talks to an address that
speaks OpenAI's protocol of chat completions, and asks only if someone has said which: by its
settings, or by the environment.
"""

import base64
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from torch import Tensor

from intarsia.errors import DataError, RecipeError, shortened
from intarsia.parsing import parse_json
from intarsia.sweetspot.pictures import png

ADDRESS, MODEL, KEY = "INTARSIA_JUDGE_ADDRESS", "INTARSIA_JUDGE_MODEL", "INTARSIA_JUDGE_KEY"
QUESTION = "Is this a picture of {thing}? Answer with one word, yes or no."
LONGEST = 1 << 20  # bytes of an answer
LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class VisionJudge:
    """Asks a model about each picture, and takes yes or no for an answer.

    thing      what the picture should show, such as "a skull"
    address    up to the version, such as http://localhost:8000/v1
    model      the name that the server knows it by
    key        sent as a bearer token, over https or to this machine alone
    timeout    seconds without an answer before it gives up
    question   with {thing} in it
    """

    thing: str
    address: str
    model: str
    key: str | None = field(default=None, repr=False)
    timeout: float = 60.0
    question: str = QUESTION

    def __post_init__(self) -> None:
        parts = _parts(self.address)
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise RecipeError(
                f"the judge's address is {shortened(self.address)}: expected one that begins with "
                "https:// or http://, such as http://localhost:8000/v1"
            )
        if self.key and parts.scheme == "http" and parts.hostname not in LOCAL:
            raise RecipeError(
                f"the judge at {self.address} would get its key unencrypted: give an address with "
                "https, or leave out the key"
            )
        if self.key and (not self.key.isascii() or not self.key.isprintable()):
            raise RecipeError(
                "the judge's key has a line break, or another character that no header may hold: "
                "give it without, as in key.strip()"
            )
        if "{thing}" not in self.question:
            raise RecipeError("the judge's question does not name {thing}, what is asked about")
        if not self.timeout > 0:
            raise RecipeError(f"the judge's timeout is {self.timeout}: expected seconds above 0")

    @classmethod
    def from_environment(
        cls, thing: str, environment: Mapping[str, str] | None = None, **settings: Any
    ) -> "VisionJudge":
        """The judge that INTARSIA_JUDGE_ADDRESS, _MODEL and _KEY name; an error if none does."""
        given = os.environ if environment is None else environment
        address, model = given.get(ADDRESS), given.get(MODEL)
        if not address or not model:
            missing = ADDRESS if not address else MODEL
            raise RecipeError(
                f"no judge is set up, since {missing} is not set: give the address of a server "
                f"with OpenAI's protocol in {ADDRESS}, and the model's name in {MODEL}"
            )
        return cls(thing, address, model, given.get(KEY) or None, **settings)

    def __call__(self, picture: Tensor) -> bool:
        """Whether the model says yes."""
        answer = self._ask(picture)
        words = re.findall(r"[a-z]+", answer.lower())
        said = {"yes", "no"} & set(words)
        if len(said) != 1:
            raise DataError(
                f"the judge at {self.address} answered {shortened(answer)}: expected yes or no"
            )
        return said == {"yes"}

    def _ask(self, picture: Tensor) -> str:
        address = f"{self.address.rstrip('/')}/chat/completions"
        headers = {"Content-Type": "application/json", "User-Agent": "intarsia"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        request = Request(address, json.dumps(self._body(picture)).encode(), headers)
        try:
            with build_opener(_NoRedirects()).open(request, timeout=self.timeout) as response:
                content = response.read(LONGEST + 1)
        except HTTPError as error:
            with error:
                detail = error.read(500).decode(errors="replace")
            raise DataError(
                f"the judge at {address} refused with {error.code} {error.reason}: "
                f"{shortened(detail)}"
            ) from error
        except TimeoutError as error:
            raise DataError(
                f"the judge at {address} gave no answer in {self.timeout:g} seconds: raise its "
                "timeout, or ask for fewer weights"
            ) from error
        except (URLError, HTTPException, OSError) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, TimeoutError):
                reason = f"no connection in {self.timeout:g} seconds"
            raise DataError(f"the judge at {address} cannot be asked: {reason}") from error
        return self._text(content, address)

    def _body(self, picture: Tensor) -> dict[str, Any]:
        image = base64.b64encode(png(picture)).decode()
        content = [
            {"type": "text", "text": self.question.replace("{thing}", self.thing)},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}},
        ]
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": content}],
            "temperature": 0,
            "max_tokens": 8,
        }

    def _text(self, content: bytes, address: str) -> str:
        if len(content) > LONGEST:
            raise DataError(f"the judge at {address} sent more than {LONGEST} bytes")
        try:
            text = parse_json(content)["choices"][0]["message"]["content"]
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise DataError(
                f"the judge at {address} sent no answer with choices[0].message.content: "
                f"{shortened(content.decode(errors='replace'))}"
            ) from error
        if not isinstance(text, str):
            raise DataError(f"the judge at {address} sent {shortened(text)}, not a text")
        return text


def _parts(address: str) -> SplitResult | None:
    """An address in its parts; None where it is none."""
    if not address.isascii() or not address.isprintable() or " " in address:
        return None
    try:
        parts = urlsplit(address)
        parts.port  # noqa: B018  a property that is checked when it is read
    except ValueError:
        return None
    return parts


class _NoRedirects(HTTPRedirectHandler):
    """Pictures and keys go to the address that was given, and to no other."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        raise HTTPError(req.full_url, code, f"sent on to {newurl}", headers, fp)
