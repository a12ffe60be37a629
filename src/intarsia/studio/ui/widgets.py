"""The widgets of the page."""

from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from intarsia.modules import Health
from intarsia.studio.session import Session
from intarsia.studio.ui.fragments import health_banner
from intarsia.studio.ui.operator_controls import Control
from intarsia.studio.ui.views import Views

HERE = Path(__file__).parent


def slot(
    name: str, value: str = "", template: str = "${value}", script: str | None = None
) -> gr.HTML:
    """A place for fragments."""
    how: Any = {"elem_id": name, "html_template": template, "js_on_load": script}
    return gr.HTML(value, apply_default_css=False, **how)


def message_line(largest: int) -> gr.HTML:
    """Where the page says what went well or wrong; files it will not send are refused at once."""
    template = "<div role='status' aria-live='polite'>${value}</div>"
    limited = script("message").replace("LARGEST", str(largest))
    return slot("message", template=template, script=limited)


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
    text = (
        f"{escape(title)}: {len(session.modules)} modules of {escape(str(first.architecture))}, "
        f"measured on {len(session.test):,} test samples of {escape(session.data.name)}"
    )
    health = Health.of(module.health for module in session.modules)
    return f"<h1>intarsia studio</h1><p class='small'>{text}</p>{health_banner(health)}"


def script(name: str) -> str:
    """The JavaScript of a widget."""
    return (HERE / f"{name}.js").read_text(encoding="utf-8")
