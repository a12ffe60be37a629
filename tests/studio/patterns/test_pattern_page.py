"""The page of pattern networks as it is served: filled, moved, and closed to all else."""

import base64
import io
import re
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from intarsia.studio.patterns import PatternSession
from intarsia.sweetspot import load_network
from intarsia.sweetspot.pictures import to_bytes

pytestmark = pytest.mark.skipif(find_spec("gradio") is None, reason="needs gradio")
Image = pytest.importorskip("PIL.Image")
pytest.importorskip("httpx")


@pytest.fixture(scope="module")
def session() -> PatternSession:
    return PatternSession([load_network("totem")], size=32)


@pytest.fixture
def page(session: PatternSession, served: Any) -> Any:
    return served(session)


def pixels(html: str) -> np.ndarray:
    """The picture in a part of the page."""
    data = re.search(r"data:image/png;base64,([^']+)'", html)
    assert data is not None
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data[1]))).convert("RGB"))


def assert_nothing_changed(answer: dict[str | None, Any]) -> None:
    """Parts of HTML repeat Gradio's mark of an update of nothing; state (no name) is not sent."""
    mark = {"__type__": "update"}
    answer = answer.copy()
    assert answer.pop(None) is None
    for name, part in answer.items():
        assert part in (mark, {**mark, "props": mark}), name


def test_choices_fill_the_page_and_the_slider_moves_the_picture(
    page: Any, session: PatternSession
) -> None:
    whole = page.post("network", "change", network="totem", reach="±1")
    strongest = max(
        (session.connections("totem", layer)[0] for _, layer in session.layers("totem")),
        key=lambda one: one.effect,
    )
    place = ",".join(map(str, strongest.place))
    assert whole["layer"]["value"] == strongest.place[0]
    assert whole["connection"]["value"] == place
    assert whole["weight"]["value"] == pytest.approx(strongest.value, abs=1e-4)
    ends = (whole["weight"]["minimum"], whole["weight"]["maximum"])
    assert ends == pytest.approx((strongest.value - 1, strongest.value + 1), abs=1e-4)
    own = to_bytes(session.picture("totem"))
    assert np.array_equal(pixels(whole["picture"]), own)
    assert np.array_equal(pixels(whole["original"]), own)

    value = strongest.value + 0.37
    moved = page.post("weight", "input", network="totem", connection=place, weight=value)
    expected = session.move("totem", strongest.place, value)
    assert np.array_equal(pixels(moved["picture"]), to_bytes(expected.picture))
    assert f"{expected.distance:.4f}" in moved["moved"]
    assert "+0.37" in moved["moved"]
    assert moved["message"] == ""
    depth, width, tile = expected.maps.shape[:3]
    assert pixels(moved["atlas"]).shape == (depth * (tile + 2), width * (tile + 2), 3)
    assert f"{strongest.target} of layer {strongest.place[0] + 1}" in moved["atlas"]

    back = page.post("reset", "click", network="totem", connection=place, reach="±10")
    assert np.array_equal(pixels(back["picture"]), own)
    assert back["weight"]["maximum"] == pytest.approx(strongest.value + 10, abs=1e-4)
    last = session.layers("totem")[-1][1]
    outputs = page.post("layer", "change", network="totem", layer=last, reach="±1")
    assert len(outputs["connection"]["choices"]) == len(session.connections("totem", last))
    assert "Framed" not in outputs["atlas"]


def test_a_list_that_an_answer_has_set_moves_nothing(page: Any, session: PatternSession) -> None:
    """Lists say that they changed whoever changed them: that must not take a moved weight back."""
    chosen = page.post("network", "change", network="totem", reach="±1")
    layer, place = chosen["layer"]["value"], chosen["connection"]["value"]
    shown: dict[str, Any] = {"network": "totem", "reach": "±1"}
    for _ in range(2):  # an echo leaves what is shown as it is, too: the next one is known as well
        assert_nothing_changed(page.post("network", "change", **shown))
        assert_nothing_changed(page.post("layer", "change", layer=layer, **shown))
        assert_nothing_changed(page.post("connection", "change", connection=place, **shown))
    for other in (number for _, number in session.layers("totem") if number != layer):
        answer = page.post("layer", "change", network="totem", layer=other, reach="±1")
        first, last = (answer["connection"]["choices"][end][1] for end in (0, -1))
        assert answer["connection"]["value"] == first
        if first != last:
            answer = page.post("connection", "change", network="totem", connection=last, reach="±1")
            own = session.connection("totem", tuple(map(int, last.split(","))))
            assert answer["weight"]["value"] == pytest.approx(own.value, abs=1e-4)
    back = page.post("reset", "click", network="totem", connection=place, reach="±1")
    assert back["weight"]["value"] == pytest.approx(chosen["weight"]["value"])


def test_maps_are_red_below_0_and_blue_above(page: Any, session: PatternSession) -> None:
    shown = page.post("layer", "change", network="totem", layer=0, reach="±1")
    drawn = session.move("totem", session.connections("totem", 0)[0].place).unit_map.numpy()
    colours = pixels(shown["unit-map"]).astype(int)
    assert (colours[drawn > 0.2][:, 2] > colours[drawn > 0.2][:, 0]).all()
    assert (colours[drawn < -0.2][:, 2] < colours[drawn < -0.2][:, 0]).all()


BAD: list[dict[str, Any]] = [
    {"network": "<b>no</b>"}, {"network": None}, {"network": ["totem"]}, {"connection": "9,9,9"},
    {"connection": "a,b,c"}, {"connection": None}, {"connection": "9" * 5000}, {"connection": {}},
    {"connection": "²,0,0"}, {"weight": None}, {"weight": "1"}, {"weight": 1e300}, {"weight": []},
]  # fmt: skip


def test_what_the_page_would_not_send_is_refused_in_our_words(
    page: Any, session: PatternSession
) -> None:
    place = ",".join(map(str, session.connections("totem", 0)[0].place))
    good = {"network": "totem", "connection": place, "weight": 0.5}
    for bad in BAD:
        answer = page.post("weight", "input", **{**good, **bad})
        assert "class='bad'" in answer["message"], bad
        assert len(answer["message"]) < 600
        assert "<b>" not in answer["message"]
        assert answer["picture"]["__type__"] == "update"  # of nothing: it stays as it is
        assert "data:image" not in str(answer["picture"])
    for reach in ("±2", None, 1, ["±1"]):
        answer = page.post("reset", "click", network="totem", connection=place, reach=reach)
        assert "how far is" in answer["message"]
    assert "no connections into layer" in page.post(
        "layer", "change", network="totem", layer=99, reach="±1"
    )["message"]  # fmt: skip
    fine = page.post("weight", "input", **good)
    assert fine["message"] == ""
    target = [page.names["weight"], "input"]
    number = next(f["id"] for f in page.config["dependencies"] if target in f["targets"])
    body = f'{{"data": ["totem", "{place}", NaN], "fn_index": {number}, "session_hash": "page"}}'
    headers = {"content-type": "application/json"}
    raw = page.ask("POST", "/gradio_api/run/predict", content=body, headers=headers)
    assert "give a number" in raw.text or raw.status_code in (400, 422)


def test_it_takes_no_files_and_serves_none(page: Any) -> None:
    answer = page.ask("POST", "/gradio_api/upload", files={"files": ("x.png", b"x")})
    assert (answer.status_code, "takes no files" in answer.text) == (413, True)
    for path in ("/gradio_api/file=/etc/hostname", "/file=/etc/hostname", "/docs", "/config2"):
        assert page.ask("GET", path).status_code == 404
    assert page.ask("GET", "/", headers={"Host": "evil.example"}).status_code == 421
    foreign = {"Origin": "http://evil.example"}
    assert page.ask("POST", "/gradio_api/run/predict", json={}, headers=foreign).status_code == 403
    file = {"path": "/etc/hostname", "meta": {"_type": "gradio.FileData"}}
    assert page.post("weight", "input", network=file) == 400
    text = page.ask("GET", "/").text
    assert set(re.findall(r"https?://([^/\"'\\\s<>]+)", text)) <= {"127.0.0.1:7878"}
