"""The page of pattern networks in Gradio: a slider moves one weight, and the picture follows."""

import base64
import io
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, NamedTuple

import gradio as gr
import numpy as np
from PIL import Image
from torch import Tensor

from intarsia.errors import IntarsiaError, RecipeError, shortened
from intarsia.plots.patterns import RED_BLUE
from intarsia.studio.patterns.pattern_session import (
    FURTHEST,
    LISTED,
    MovedWeight,
    PatternSession,
)
from intarsia.studio.ui.events import LAST, QUIET
from intarsia.studio.ui.fragments import message
from intarsia.studio.ui.layout import WORKING
from intarsia.studio.ui.widgets import slot
from intarsia.sweetspot import Connection
from intarsia.sweetspot.pattern_scores import Place
from intarsia.sweetspot.pictures import to_bytes

REACHES = {"±1": 1.0, "±3": 3.0, "±10": 10.0}
STEPS = 200  # of the slider
SEAM, FRAME = 127, 128  # colours of the atlas beside those of maps, which are below
SEAM_WIDTH = 2
FRAME_COLOUR = (200, 100, 0)
HEADING = (
    "<h1>intarsia studio</h1><p class='small'>Pattern networks: move one weight, and see what "
    "becomes of the picture, and of what every unit draws.</p>"
)
STATUS = "<div role='status' aria-live='polite'>${value}</div>"
# As they come: the session checks them, in words of its own.
RAW: dict[str, Any] = {"preprocess": False}


class Drawn(NamedTuple):
    """What changes with the weight, in the order of its places on the page."""

    numbers: str
    picture: str
    unit: str
    atlas: str
    message: str


class Shown(NamedTuple):
    """Whose weight the page shows."""

    network: str
    place: Place


class PatternPage:
    """The controls of the page, and what happens when they are used.

    A list says that it changed whenever its value does, also where an answer of ours set it. Each
    request says what is shown, and one that would change nothing leaves the slider where it is.
    (Gradio's other event, `input`, comes twice for a choice, and with every blur.)
    """

    def __init__(self, session: PatternSession) -> None:
        self.session = session
        self.shown = gr.State(None)  # Shown, once something is
        slot("heading", HEADING)
        self.message = slot("message", template=STATUS)
        slot("working", WORKING)
        with gr.Row():
            with gr.Column(scale=2, min_width=300):
                self._choices(session.names[0])
            with gr.Column(scale=4, min_width=320):
                with gr.Row(elem_id="drawn"):
                    self.picture = slot("picture")
                    self.unit = slot("unit-map")
                    self.original = slot("original")
                self._slider()
                self.numbers = slot("moved")
        self.atlas = slot("atlas")

    def connect(self, blocks: gr.Blocks) -> None:
        """Say which function follows which control."""
        drawn = [self.numbers, self.picture, self.unit, self.atlas, self.message]
        placed = [self.shown, self.slider, *drawn]
        weight = [self.network, self.connection]
        gr.on(
            [blocks.load, self.network.change],
            self.choose_network, [self.shown, self.network, self.reach],
            [self.original, self.layer, self.connection, *placed], **RAW, **LAST,
        )  # fmt: skip
        self.layer.change(
            self.choose_layer, [self.shown, self.network, self.layer, self.reach],
            [self.connection, *placed], **RAW, **LAST,
        )  # fmt: skip
        self.connection.change(
            self.choose_connection, [self.shown, *weight, self.reach], placed, **RAW, **LAST
        )
        gr.on(
            [self.reach.input, self.reset.click],
            self.place_slider, [*weight, self.reach], placed, **RAW, **QUIET,
        )  # fmt: skip
        self.slider.input(self.move, [*weight, self.slider], drawn, **RAW, **LAST)

    def choose_network(self, shown: Shown | None, name: Any, reach: Any) -> tuple[Any, ...]:
        """Another network, from its weight of the largest effect on."""

        def answer() -> tuple[Any, ...]:
            if shown is not None and shown.network == name:
                return _unchanged(5)
            layers = self.session.layers(name)
            strongest = [self.session.connections(name, number)[0] for _, number in layers]
            first = max(strongest, key=lambda one: one.effect).place[0]
            original = _figure(_colours(self.session.picture(name)), "as it was", "its own picture")
            layer = gr.update(choices=layers, value=first)
            return (original, layer, *self._chosen(name, first, reach))

        return self._answered(answer, 5)

    def choose_layer(
        self, shown: Shown | None, name: Any, layer: Any, reach: Any
    ) -> tuple[Any, ...]:
        """The connections into another layer."""

        def answer() -> tuple[Any, ...]:
            if shown is not None and (shown.network, shown.place[0]) == (name, layer):
                return _unchanged(3)
            return self._chosen(name, layer, reach)

        return self._answered(answer, 3)

    def choose_connection(
        self, shown: Shown | None, name: Any, connection: Any, reach: Any
    ) -> tuple[Any, ...]:
        """Another weight, at the value that the network has."""
        if shown == (name, _place(connection)):
            return _unchanged(2)
        return self.place_slider(name, connection, reach)

    def place_slider(self, name: Any, connection: Any, reach: Any) -> tuple[Any, ...]:
        """The slider at the value that the network has, and the picture as it was."""

        def answer() -> tuple[Any, ...]:
            return self._placed(name, self.session.connection(name, _place(connection)), reach)

        return self._answered(answer, 2)

    def move(self, name: Any, connection: Any, value: Any) -> tuple[Any, ...]:
        """The weight has another value."""

        def answer() -> tuple[Any, ...]:
            if value is None:
                raise RecipeError("the weight's field is empty: give a number")
            own = self.session.connection(name, _place(connection))
            return self._drawn(name, own, value)

        return self._answered(answer, 0)

    def _choices(self, first: str) -> None:
        self.network = gr.Dropdown(
            list(self.session.names), value=first, label="Network", elem_id="network",
            filterable=False,
        )  # fmt: skip
        layers = self.session.layers(first)
        self.layer = gr.Dropdown(
            layers, value=layers[0][1], label="Connections into", elem_id="layer", filterable=False
        )
        self.connection = gr.Dropdown(
            [], label="Connection", elem_id="connection",
            info=f"Weights that are not 0; the effect is how far a small change moves the picture. "
            f"Up to {LISTED}, the largest effect first",
        )  # fmt: skip
        self.reach = gr.Radio(
            list(REACHES), value=next(iter(REACHES)), label="How far it moves", elem_id="reach"
        )

    def _slider(self) -> None:
        """Right below the picture, so that both are seen on a phone, too."""
        self.slider = gr.Slider(
            -1, 1, value=0, step=2 / STEPS, label="Weight", elem_id="weight", buttons=[],
            info="Drag it, or use the arrow keys",
        )  # fmt: skip
        self.reset = gr.Button("Back to the weight as it was", size="sm", elem_id="reset")

    def _chosen(self, name: Any, layer: Any, reach: Any) -> tuple[Any, ...]:
        """The list of a layer's connections, the slider at the first, and what is drawn."""
        listed = self.session.connections(name, layer)[:LISTED]
        choices = [(_label(one), ",".join(map(str, one.place))) for one in listed]
        connection = gr.update(choices=choices, value=choices[0][1])
        return (connection, *self._placed(name, listed[0], reach))

    def _placed(self, name: Any, own: Connection, reach: Any) -> tuple[Any, ...]:
        return (Shown(name, own.place), _range(own, reach), *self._drawn(name, own, None))

    def _drawn(self, name: Any, own: Connection, value: Any) -> Drawn:
        moved = self.session.move(name, own.place, value)
        return Drawn(
            _numbers(moved),
            _figure(_colours(moved.picture), "the picture", f"{name} with the weight moved"),
            _figure(
                _signs(moved.unit_map), f"{own.target} draws", f"the map of the unit {own.target}"
            ),
            _atlas(moved, self.session.unit_names(name)),
            "",
        )

    def _answered(self, answer: Callable[[], tuple[Any, ...]], controls: int) -> tuple[Any, ...]:
        """The answer; where the request is refused all stays as it is, and the page says why."""
        try:
            return answer()
        except IntarsiaError as error:
            return (*_unchanged(controls)[:-1], message(str(error), bad=True))


def _unchanged(controls: int) -> tuple[Any, ...]:
    """An answer that leaves so many controls as they are, and all that is drawn."""
    return (gr.skip(),) * (controls + len(Drawn._fields))


def build_patterns(session: PatternSession) -> gr.Blocks:
    """All controls, and what happens when they are used."""
    with gr.Blocks(title="intarsia studio", analytics_enabled=False, fill_width=True) as blocks:
        PatternPage(session).connect(blocks)
    return blocks


def _place(given: Any) -> Any:
    """A connection as the page names it, "2,0,5", as a place; what it cannot be the session says.

    Text of another kind stays as it is.
    """
    if not isinstance(given, str):
        return given
    parts = given.split(",")
    sound = len(parts) == 3 and all(p.isascii() and p.isdecimal() and len(p) < 6 for p in parts)
    return tuple(map(int, parts)) if sound else given


def _label(own: Connection) -> str:
    return f"{own.source} to {own.target}: {own.value:.4g}, effect {own.effect:.3g}"


def _range(own: Connection, reach: Any) -> Any:
    """The slider around a weight, in steps that meet it."""
    if not isinstance(reach, str) or reach not in REACHES:
        raise RecipeError(f"how far is {shortened(reach)}: choose one of {', '.join(REACHES)}")
    middle, far = round(own.value, 4), REACHES[reach]
    low, high = max(middle - far, -FURTHEST), min(middle + far, FURTHEST)
    return gr.update(
        minimum=round(low, 4), maximum=round(high, 4), value=middle, step=2 * far / STEPS
    )


def _numbers(moved: MovedWeight) -> str:
    own = moved.connection
    change = moved.value - own.value
    words = f"{change:+.2f} from {own.value:.4g}" if abs(change) >= 5e-3 else "as it was"
    pairs = (
        ("Weight", f"{moved.value:.2f}", f"{own.source} to {own.target}, {words}"),
        ("Distance", f"{moved.distance:.4f}", "mean squared error to its own picture"),
    )
    parts = "".join(
        f"<div class='number'><h2>{escape(title)}</h2><p class='big'>{escape(number)}</p>"
        f"<p class='small'>{escape(about)}</p></div>"
        for title, number, about in pairs
    )
    return f"<div class='numbers'>{parts}</div>"


def _figure(address: str, caption: str, alt: str) -> str:
    return (
        f"<figure><img src='{address}' alt='{escape(alt, quote=True)}'/>"
        f"<figcaption class='small'>{escape(caption)}</figcaption></figure>"
    )


def _atlas(moved: MovedWeight, names: Sequence[str]) -> str:
    """All maps as one picture in a box that scrolls, with the unit that the weight feeds framed."""
    maps = moved.maps
    layer, row, _ = moved.connection.place
    hidden = layer < len(maps)
    about = (
        "What every unit draws: a row for each hidden layer, the first on top; red is -1, white "
        "0, blue 1. Units from the left: " + ", ".join(names) + "."
    )
    framed = f"Framed: {moved.connection.target} of layer {layer + 1}." if hidden else ""
    address = _png(_tiles(maps, (layer, row) if hidden else None), _palette())
    label = f"the maps of {len(maps)} layers of {maps.shape[1]} units"
    return (
        "<h2>All maps</h2>"
        f"<div class='scrolls' tabindex='0' role='group' aria-label='{label}'>"
        f"<img src='{address}' alt='{label}'/></div>"
        f"<p class='small'>{escape(f'{about} {framed}'.strip())}</p>"
    )


def _tiles(maps: Tensor, framed: tuple[int, int] | None) -> np.ndarray:
    """The maps as places in the palette, with seams between them."""
    depth, width, tile = maps.shape[:3]
    pitch = tile + SEAM_WIDTH
    page = np.full((depth, pitch, width, pitch), SEAM, dtype=np.uint8)
    inner = slice(SEAM_WIDTH // 2, SEAM_WIDTH // 2 + tile)
    page[:, inner, :, inner] = _steps(maps).transpose(0, 2, 1, 3)
    if framed is not None:
        layer, unit = framed
        own = page[layer, :, unit]
        for edge in (own[:3], own[-3:], own[:, :3], own[:, -3:]):
            edge[:] = FRAME
    return page.reshape(depth * pitch, width * pitch)


def _steps(maps: Tensor) -> np.ndarray:
    """Values from -1 to 1 as places in the palette."""
    values: np.ndarray = maps.nan_to_num().clamp(-1, 1).numpy()
    return np.rint((values + 1) / 2 * (SEAM - 1)).astype(np.uint8)


def _palette() -> list[int]:
    colours = (RED_BLUE(np.linspace(0, 1, SEAM))[:, :3] * 255).round().astype(int)
    return [*colours.flatten().tolist(), 255, 255, 255, *FRAME_COLOUR]


def _signs(unit_map: Tensor) -> str:
    return _png(_steps(unit_map), _palette())


def _colours(picture: Tensor) -> str:
    return _png(to_bytes(picture.nan_to_num()))


def _png(pixels: np.ndarray, palette: list[int] | None = None) -> str:
    """An address that holds the picture, written quickly rather than small."""
    image, how = Image.fromarray(pixels), {}
    if palette is not None:
        image.putpalette(palette)
        how = {"transparency": SEAM}
    content = io.BytesIO()
    image.save(content, format="PNG", compress_level=1, **how)
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"
