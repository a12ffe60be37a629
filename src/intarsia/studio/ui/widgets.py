"""The widgets of the page."""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from intarsia.modules import Health
from intarsia.studio.encoder_inputs import ENDINGS
from intarsia.studio.session import Session
from intarsia.studio.ui.fragments import health_banner, no_encoder
from intarsia.studio.ui.operator_controls import Control
from intarsia.studio.ui.views import Views
from intarsia.studio.web.studio_limits import StudioLimits, megabytes

HERE = Path(__file__).parent


def slot(
    name: str, value: str = "", template: str = "${value}", script: str | None = None
) -> gr.HTML:
    """A place for fragments."""
    how: Any = {"elem_id": name, "html_template": template, "js_on_load": script}
    return gr.HTML(value, apply_default_css=False, **how)


def message_line(limits: StudioLimits) -> gr.HTML:
    """Where the page says what went well or wrong; files it will not send are refused at once."""
    template = "<div role='status' aria-live='polite'>${value}</div>"
    limited = script("message")
    for name, value in {
        "MODULE_BYTES": limits.file_bytes,
        "PICTURE_BYTES": min(limits.picture_bytes, limits.file_bytes),
        "PICTURE_ENDINGS": list(ENDINGS),
    }.items():
        limited = limited.replace(name, json.dumps(value))
    return slot("message", template=template, script=limited)


def file_field(name: str, label: str, endings: Sequence[str]) -> gr.File:
    """A place where a file can be dropped or chosen."""
    field = gr.File(label=label, file_types=list(endings), elem_id=name, height=150)
    # Gradio's own example, which would be in the page, names a file elsewhere.
    field.example_payload = lambda: None  # type: ignore[method-assign]
    return field


def picture_field(views: Views, limits: StudioLimits) -> gr.File | None:
    """A place for a picture, where the modules' encoder reads them and is here."""
    if not _takes(views, "picture"):
        return None
    largest = megabytes(min(limits.picture_bytes, limits.file_bytes))
    return file_field("sample-picture", f"Or a picture of yours, up to {largest}", ENDINGS)


def text_field(views: Views, limits: StudioLimits) -> tuple[gr.Textbox, gr.Button] | None:
    """A place for a text and a button to send it, likewise."""
    if not _takes(views, "text"):
        return None
    most = limits.text_characters
    field = gr.Textbox(
        label="Or a text of yours", elem_id="sample-text", lines=2, max_lines=6, max_length=most,
        info=f"up to {most:,} characters; Shift and Enter send it",
    )  # fmt: skip
    return field, gr.Button("Classify this text", size="sm", elem_id="sample-text-send")


def _takes(views: Views, kind: str) -> bool:
    """Whether the page gets a place for pictures or texts; a missing encoder is named instead."""
    if views.reader is None or views.reader.kind != kind:
        return False
    missing = views.reader.missing()
    if missing:
        slot("no-encoder", no_encoder(kind, missing))
    return not missing


def drawing_pad(views: Views) -> gr.HTML | None:
    """A pad to draw on, for data whose pictures can be drawn."""
    if views.scaler is None:
        return None
    scaler = views.scaler
    width = round(280 * scaler.pen / scaler.width)
    template = (
        "<div class='pad'><h2>Or draw one</h2><canvas width='280' height='280' tabindex='0' "
        f"role='img' data-pen='{width}' data-fraction='{scaler.pen / scaler.side:.3f}' "
        "aria-label='A pad to draw on'></canvas><button type='button'>Clear</button>"
        "<p class='small'>By keyboard: Shift and arrow keys</p></div>"
    )
    return slot("sample-draw", template=template, script=script("draw"))


def control_widget(operator: str, control: Control, value: Any) -> Any:
    """The widget for a setting of an operator, by its kind."""
    about: dict[str, Any] = {
        "label": control.name.replace("_", " "),
        "elem_id": f"setting-{operator}-{control.name}",
        "info": "empty: as the preset has it" if control.optional else None,
    }
    if control.kind == "flag":
        return gr.Checkbox(bool(value), **about)
    if control.kind == "choice":
        none = [("(the preset's)", "")] if control.optional else []
        choices = [*none, *((c, c) for c in control.choices)]
        return gr.Dropdown(choices, value=value or "", **about)
    if control.kind == "text":
        about["info"] = "one number, or some by name: 3: 0.5, 8: 2"
    if control.kind == "text" or control.optional:  # gr.Number would turn an empty field into 0
        return gr.Textbox("" if value is None else str(value), max_lines=1, **about)
    return gr.Number(value, precision=0 if control.kind == "integer" else None, step=0.05, **about)


def heading(session: Session, title: str) -> str:
    first = session.modules[0]
    encoder = "" if first.encoder is None else f"features of {escape(str(first.encoder))}, "
    text = (
        f"{escape(title)}: {len(session.modules)} modules of {escape(str(first.architecture))}, "
        f"{encoder}measured on {len(session.test):,} test samples of {escape(session.data.name)}"
    )
    health = Health.of(module.health for module in session.modules)
    return f"<h1>intarsia studio</h1><p class='small'>{text}</p>{health_banner(health)}"


def script(name: str) -> str:
    """The JavaScript of a widget."""
    return (HERE / f"{name}.js").read_text(encoding="utf-8")
