"""The controls of the page and their places; what happens when they are used is in events.py."""

from typing import Any

import gradio as gr

from intarsia.measure.compatibility import MEASURES
from intarsia.studio.ui.operator_controls import controls_of
from intarsia.studio.ui.views import SampleRequest, Views
from intarsia.studio.ui.widgets import (
    control_widget,
    drawing_pad,
    file_field,
    heading,
    message_line,
    picture_field,
    script,
    slot,
    text_field,
)
from intarsia.studio.uploads import loadable_files
from intarsia.studio.web.studio_limits import StudioLimits, megabytes

RADIO_UP_TO = 16  # classes to choose by one click; more go into a list
WORKING = "<p role='status'>Computing ...</p>"  # after half a second, by studio.css
MATRIX = (
    "Interference is the best prediction of what adding two modules' weights will cost; the others "
    "say how much the two share. A cell selects its pair for the path, and joins the two."
)


class Layout:
    """The controls of one page, in their order on it."""

    def __init__(self, views: Views, title: str, limits: StudioLimits) -> None:
        self.views, self.session, self.limits = views, views.session, limits
        self.shown, self.request = gr.State(None), gr.State(SampleRequest())
        slot("heading", heading(views.session, title))
        self.message = message_line(limits)
        slot("working", WORKING)
        with gr.Row():
            with gr.Column(scale=2, min_width=300):
                self._module_panel()
                self._load_panel()
            with gr.Column(scale=5, min_width=320):
                with gr.Row(equal_height=True, elem_id="numbers"):
                    self.accuracy, self.entropy, self.change = map(
                        slot, ("accuracy", "entropy", "change")
                    )
                with gr.Tabs(elem_id="tabs", overflow_behavior="wrap"):
                    with gr.Tab("Confusion", id="confusion-tab"):
                        self.confusion = slot("confusion")
                    with gr.Tab("One sample", id="sample"):
                        self._sample()
                    with gr.Tab("Path", id="path") as self.path_tab:
                        self._path()
                    with gr.Tab("Compatibility", id="compatibility-tab") as self.matrix_tab:
                        self._matrix()

    def _module_panel(self) -> None:
        names = list(self.session.names)
        self.tiles = gr.CheckboxGroup(
            self.views.tiles(), value=names, label="Modules", elem_id="module-tiles",
            info="Accuracy on its own classes, and the fraction of weights kept",
        )  # fmt: skip
        with gr.Row():
            self.all_on, self.all_off = (
                gr.Button(word, size="sm", elem_id=word.lower().replace(" ", "-"), min_width=90)
                for word in ("All on", "All off")
            )
        first = self.session.operator
        self.operator = gr.Dropdown(
            self.views.operators(), value=first.name, label="Operator", elem_id="operator",
            info=self.views.about(first.name), filterable=False,
        )  # fmt: skip
        self.groups: dict[str, gr.Column] = {}
        self.controls: list[tuple[str, str, Any]] = []  # operator, setting, control
        for name in self.views.operators():
            given = first.arguments if name == first.name else {}
            with gr.Column(visible=name == first.name, elem_id=f"settings-{name}") as group:
                for control in controls_of(name):
                    one = control_widget(name, control, given.get(control.name, control.default))
                    self.controls.append((name, control.name, one))
            self.groups[name] = group

    def _load_panel(self) -> None:
        with gr.Accordion("Load a module file", open=False, elem_id="load"):
            most = megabytes(self.limits.file_bytes)
            label = f"A .safetensors file of yours, up to {most}"
            self.file = file_field("load-file", label, [".safetensors"])
            files = loadable_files(self.session)
            self.other_file = gr.Dropdown(
                files, value=None, label="Or another file of the folder", elem_id="load-other",
                visible=bool(files),
            )  # fmt: skip
            self.load_other = gr.Button(
                "Load this file", size="sm", elem_id="load-this", visible=bool(files)
            )
            with gr.Column(visible=False, elem_id="loaded") as self.loaded:
                self.loaded_module = gr.Dropdown(
                    [], label="Modules loaded so far", elem_id="loaded-module"
                )
                self.remove = gr.Button("Remove this module", size="sm", elem_id="loaded-remove")

    def _sample(self) -> None:
        with gr.Row():
            with gr.Column(scale=2, min_width=300, elem_id="sample"):
                with gr.Row():
                    self.sample_class = gr.Dropdown(
                        [("any", ""), *((c, c) for c in self.session.catalogue)], value="",
                        label="Sample of class", elem_id="sample-class", min_width=100,
                    )  # fmt: skip
                    last = len(self.session.test) - 1
                    self.number = gr.Number(
                        0, label=f"Number, 0-{last}", elem_id="sample-number",
                        min_width=100,
                    )  # fmt: skip
                self.next = gr.Button("Next sample", size="sm", elem_id="sample-next")
                self.own_picture = picture_field(self.views, self.limits)
                self.own_text = text_field(self.views, self.limits)
                with gr.Row(elem_id="pictures"):
                    self.picture = slot("sample-seen")
                    self.pad = drawing_pad(self.views)
            with gr.Column(scale=3, min_width=300):
                choices = self.views.classes()
                control = gr.Radio if len(choices) <= RADIO_UP_TO else gr.Dropdown
                self.without = control(
                    choices, value="", label="Take a class out", elem_id="take-out",
                    info="The same modules without the one for it; choose nothing to put it back",
                )  # fmt: skip
                self.merged = slot("joined-answer")
                self.inside = gr.Checkbox(
                    False, label="Entropy through the layers", elem_id="look-inside",
                    info="How unsure the layers of the surest modules are of this sample",
                )  # fmt: skip
                self.layers = slot("layer-entropies")
                slot("alone", "<h2>Each module alone</h2>")
                self.each = slot("module-answers")

    def _path(self) -> None:
        names = list(self.session.names)
        with gr.Row():
            self.start = gr.Dropdown(
                names, value=names[0], label="From module", elem_id="path-from"
            )
            self.end = gr.Dropdown(names, value=names[-1], label="To module", elem_id="path-to")
        self.path_figure = slot("path-figure")

    def _matrix(self) -> None:
        kinds = [(name.replace("_", " "), name) for name in MEASURES]
        self.measure = gr.Radio(
            kinds, value=next(iter(MEASURES)), label="Measure", elem_id="measure",
            info=MATRIX,
        )  # fmt: skip
        self.matrix = slot("compatibility", script=script("matrix"))

    def selection(self) -> list[Any]:
        """The controls that say what is joined, and how."""
        return [self.tiles, self.operator, *(control for _, _, control in self.controls)]

    def module_lists(self) -> list[Any]:
        """The lists that change when a module is loaded or removed."""
        return [
            self.tiles, self.start, self.end, self.without, self.other_file, self.load_other,
            self.loaded_module, self.loaded,
        ]  # fmt: skip

    def outputs(self) -> list[Any]:
        """What changes with a switch."""
        return [
            self.confusion, self.accuracy, self.entropy, self.change, self.message, self.shown,
            self.picture, self.merged, self.each,
        ]  # fmt: skip
