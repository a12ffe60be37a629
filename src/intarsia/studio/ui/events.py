"""What happens when the controls of the page are used."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from intarsia.errors import CompositionError, FileError, IntarsiaError
from intarsia.studio.answers import next_sample
from intarsia.studio.encoder_inputs import EncodedInput, InputReader, read_picture
from intarsia.studio.session import Session
from intarsia.studio.ui import fragments
from intarsia.studio.ui.layout import Layout
from intarsia.studio.ui.views import SampleRequest, Selection, Views
from intarsia.studio.uploads import LoadResult, loadable_files
from intarsia.studio.visitors import VISITOR, Visitors

QUIET: dict[str, Any] = {
    "queue": False,  # answered at once, by one request
    "show_progress": "hidden",
    "api_visibility": "private",
}
SLOW: dict[str, Any] = {**QUIET, "show_progress": "minimal"}  # paler if long, by studio.css
# What is changed while an answer is on its way is answered after it; several triggers need this.
LAST: dict[str, Any] = {"trigger_mode": "always_last", **SLOW}


class Events:
    """The functions behind a page's controls, for the visitor who uses them."""

    def __init__(self, page: Layout, visitors: Visitors) -> None:
        self.page, self.visitors = page, visitors

    @property
    def session(self) -> Session:
        """What the visitor who asks has."""
        return self.visitors.session(VISITOR.get())

    @property
    def views(self) -> Views:
        return self.page.views.of(self.session)

    def connect(self, blocks: gr.Blocks) -> None:
        """Say which function follows which control."""
        page, selection = self.page, self.page.selection()
        gr.on(
            [control.change for control in selection],
            self.switch,
            [page.shown, page.request, page.without, *selection],
            page.outputs(),
            **LAST,
        )
        page.operator.change(
            self.settings, page.operator, [page.operator, *page.groups.values()], **QUIET
        )
        page.all_on.click(lambda: list(self.session.names), None, page.tiles, **QUIET)
        page.all_off.click(list, None, page.tiles, **QUIET)
        self._connect_sample(selection)
        self._connect_pairs()
        self._connect_files()
        first = {**SLOW, "show_progress_on": [page.accuracy]}
        blocks.load(self.opened, selection, [*page.outputs(), *page.module_lists()], **first)

    def _connect_files(self) -> None:
        page = self.page
        changed = [page.message, *page.module_lists()]
        # As it arrived: read by Gradio, a file would leave a second one behind.
        page.file.upload(self.upload, page.file, [page.file, *changed], preprocess=False, **QUIET)
        page.load_other.click(self.other, page.other_file, changed, **QUIET)
        chosen = [page.tiles, page.start, page.end, page.without]
        page.remove.click(self.remove, [page.loaded_module, *chosen], changed, **QUIET)

    def _connect_sample(self, selection: list[Any]) -> None:
        page = self.page
        view = [page.request, page.without, *selection]
        sample = [page.picture, page.merged, page.each, page.message]
        cleared = [] if page.pad is None else [page.pad]
        page.number.change(
            self.numbered, [page.number, *view], [page.request, *sample, *cleared], **LAST
        )
        if page.pad is not None:
            page.pad.change(self.drawn, [page.pad, *view], [page.request, *sample], **LAST)
        if page.own_picture is not None:  # as it arrived: see _connect_files
            page.own_picture.upload(
                self.picture, [page.own_picture, *view], [page.own_picture, page.request, *sample],
                preprocess=False, **SLOW,
            )  # fmt: skip
        if page.own_text is not None:
            field, send = page.own_text
            gr.on(
                [field.submit, send.click], self.text, [field, *view], [page.request, *sample],
                **SLOW,
            )  # fmt: skip
        page.without.change(self.look, view, sample, **LAST)
        gr.on(
            [page.inside.change, page.picture.change, page.tiles.change],
            self.inside,
            [page.inside, page.request, page.tiles],
            page.layers,
            **LAST,
        )
        page.sample_class.change(self.next, page.sample_class, [page.number, page.message], **QUIET)
        page.next.click(
            self.next, [page.sample_class, page.number], [page.number, page.message], **QUIET
        )

    def _connect_pairs(self) -> None:
        page = self.page
        gr.on(
            [page.path_tab.select, page.start.change, page.end.change],
            self.path,
            [page.start, page.end],
            page.path_figure,
            **LAST,
        )
        gr.on(
            [page.matrix_tab.select, page.measure.change],
            self.square,
            [page.measure, page.start, page.end],
            page.matrix,
            **LAST,
        )
        page.matrix.click(
            self.pair, page.measure, [page.start, page.end, page.tiles, page.matrix], **QUIET
        )

    def opened(self, *values: Any) -> tuple[Any, ...]:
        """All that a page shows when it is opened."""
        return (*self.switch(None, SampleRequest(), "", *values), *self._module_lists())

    def switch(
        self, shown: Any, request: SampleRequest, without: str, *values: Any
    ) -> tuple[Any, ...]:
        """All that depends on what is switched on."""
        selection = self._selection(values)
        merged = self.views.merged_view(selection, shown)
        sample = self.views.sample_view(selection, request, without)
        message = merged.message or sample.message
        return (*merged._replace(message=message), *sample[:3])

    def look(self, request: SampleRequest, without: str, *values: Any) -> tuple[str, ...]:
        return self.views.sample_view(self._selection(values), request, without)

    def inside(self, wanted: bool, request: SampleRequest, tiles: list[str]) -> str:
        return self.views.layers_view(wanted, request, tiles)

    def numbered(
        self, number: float | None, request: SampleRequest, without: str, *values: Any
    ) -> tuple[Any, ...]:
        """A test sample was chosen: it replaces a drawing, or whatever else was shown."""
        request = SampleRequest(number)
        cleared = () if self.page.pad is None else ("",)
        return (request, *self.look(request, without, *values), *cleared)

    def drawn(
        self, drawing: str, request: SampleRequest, without: str, *values: Any
    ) -> tuple[Any, ...]:
        request = SampleRequest(request.number, drawing or "")
        return (request, *self.look(request, without, *values))

    def picture(
        self, given: Any, request: SampleRequest, without: str, *values: Any
    ) -> tuple[Any, ...]:
        """A picture arrived: it takes the place of a test sample, and its file is deleted."""

        def encoded(reader: InputReader) -> EncodedInput:
            limits, shape = self.visitors.limits, reader.encoder.shape
            pixels = self.visitors.read(
                VISITOR.get(), self._arrived(given), lambda path: read_picture(path, shape, limits)
            )
            return reader.picture(pixels)

        return (None, *self._given(encoded, request, without, values))

    def text(
        self, given: Any, request: SampleRequest, without: str, *values: Any
    ) -> tuple[Any, ...]:
        """A text was sent: it takes the place of a test sample."""
        limits = self.visitors.limits
        return self._given(lambda reader: reader.text(given, limits), request, without, values)

    def _given(
        self,
        encoded: Callable[[InputReader], EncodedInput],
        request: SampleRequest,
        without: str,
        values: tuple[Any, ...],
    ) -> tuple[Any, ...]:
        """The answers for what a visitor brought; where it is refused, all stays as it is."""
        try:
            reader = self.page.views.reader
            if reader is None:
                raise CompositionError("the modules have no encoder: they read no such input")
            request = SampleRequest(request.number, given=encoded(reader))
        except IntarsiaError as error:
            return (*[gr.skip()] * 4, fragments.message(str(error), bad=True))
        return (request, *self.look(request, without, *values))

    def _arrived(self, given: Any) -> Path:
        """An upload of the visitor who asks, that is still there."""
        name = given.get("path") if isinstance(given, dict) else None
        path = Path(str(name or "")).resolve()
        if not self.visitors.owns(VISITOR.get(), path) or not path.is_file():
            raise FileError("the file did not arrive: choose it again")
        return path

    def next(self, kind: str, after: float | None = None) -> tuple[Any, str]:
        """The number of the next sample of a class, or the first; unchanged where it has none."""
        try:
            return next_sample(self.session, kind, after), ""
        except IntarsiaError as error:
            return gr.skip(), fragments.message(str(error), bad=True)

    def settings(self, operator: str) -> list[Any]:
        return [
            gr.update(info=self.views.about(operator)),
            *(gr.update(visible=name == operator) for name in self.page.groups),
        ]

    def path(self, one: str, other: str) -> str:
        return self.views.path(one, other)

    def square(self, measure: str, one: str, other: str) -> str:
        return self.views.matrix(measure, (one, other))

    def pair(self, measure: str, event: gr.EventData) -> tuple[Any, ...]:
        """A cell was clicked: its two modules, for the path and as what is on."""
        one, other = str(event.one), str(event.other)
        return one, other, [one, other], self.views.matrix(measure, (one, other))

    def upload(self, given: Any) -> tuple[Any, ...]:
        """A file arrived: read it, and delete it in any case."""
        return (
            None,
            *self._loaded(lambda: self.visitors.load(VISITOR.get(), self._arrived(given))),
        )

    def other(self, name: str | None) -> tuple[Any, ...]:
        if not name:
            message = fragments.message("no file is chosen: choose one of the list first", bad=True)
            return (message, *self._module_lists())
        return self._loaded(lambda: self.visitors.load_from_folder(VISITOR.get(), name))

    def remove(
        self, name: str | None, tiles: list[str], start: str, end: str, without: str
    ) -> tuple[Any, ...]:
        """Remove a module that was loaded, and deselect it wherever it was selected."""
        try:
            if not name:
                raise CompositionError("no module is chosen: choose one of the list first")
            self.visitors.remove(VISITOR.get(), name)
        except IntarsiaError as error:
            return (fragments.message(str(error), bad=True), *self._module_lists())
        names, classes = self.session.names, [key for _, key in self.views.classes()]
        left = (
            [tile for tile in tiles if tile != name],
            start if start != name else names[0],
            end if end != name else names[-1],
            without if without in classes else "",
        )
        return (fragments.message(f"removed {name}"), *self._module_lists(left))

    def _loaded(self, loading: Callable[[], LoadResult]) -> tuple[Any, ...]:
        """The message about a file; its modules are off at first."""
        try:
            message = fragments.message(loading().message)
        except IntarsiaError as error:
            message = fragments.message(str(error), bad=True)
        return (message, *self._module_lists())

    def _module_lists(self, values: tuple[Any, ...] = ()) -> tuple[Any, ...]:
        """The lists that change when a module is loaded or removed, and what is chosen in them."""
        names, files = list(self.session.names), loadable_files(self.session)
        loaded = [name for name in names if name not in self.session.initial]
        kept = [{"value": value} for value in values] or [{}] * 4
        lists = (self.views.tiles(), names, names, self.views.classes())
        return (
            *(gr.update(choices=c, **value) for c, value in zip(lists, kept, strict=True)),
            gr.update(choices=files, value=None, visible=bool(files)),
            gr.update(visible=bool(files)),
            gr.update(choices=loaded, value=loaded[-1] if loaded else None),
            gr.update(visible=bool(loaded)),
        )

    def _selection(self, values: tuple[Any, ...]) -> Selection:
        tiles, operator, *settings = values
        mine = {
            setting: value
            for (name, setting, _), value in zip(self.page.controls, settings, strict=True)
            if name == operator
        }
        return Selection(tuple(tiles), operator, mine)
