"""What happens when something on the page is used."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from intarsia.errors import IntarsiaError
from intarsia.studio import pieces
from intarsia.studio.answers import next_of
from intarsia.studio.controls import about
from intarsia.studio.layout import Layout
from intarsia.studio.loading import load, load_from_folder, others
from intarsia.studio.views import Choice, Seen

QUIET: dict[str, Any] = {
    "queue": False,  # answered at once, by one request
    "show_progress": "hidden",
    "api_visibility": "private",
}
LAST: dict[str, Any] = {"trigger_mode": "always_last", **QUIET}
SLOW: dict[str, Any] = {**QUIET, "show_progress": "minimal"}


class Acting:
    """The functions behind a page's controls; `uploads` is where files arrive."""

    def __init__(self, page: Layout, uploads: Path) -> None:
        self.page, self.uploads = page, uploads
        self.views, self.session = page.views, page.session

    def connect(self, blocks: gr.Blocks) -> None:
        """Say who is told when what changes."""
        page, choice = self.page, self.page.what()
        gr.on(
            [thing.change for thing in choice],
            self.switch,
            [page.shown, page.seen, page.without, *choice],
            page.everything(),
            **LAST,
        )
        page.operator.change(
            self.settings, page.operator, [page.operator, *page.groups.values()], **QUIET
        )
        page.all_on.click(lambda: list(self.session.names), None, page.tiles, **QUIET)
        page.all_off.click(list, None, page.tiles, **QUIET)
        self._connect_sample(choice)
        self._connect_pairs()
        known = [page.tiles, page.start, page.end, page.without, page.other]
        # As it arrived: read by Gradio, a file would leave a second one behind.
        page.file.upload(
            self.upload, page.file, [page.file, page.message, *known], preprocess=False, **QUIET
        )
        page.other.input(self.other, page.other, [page.message, *known], **QUIET)
        blocks.load(self.opened, choice, [*page.everything(), *known], **QUIET)

    def _connect_sample(self, choice: list[Any]) -> None:
        page = self.page
        view = [page.seen, page.without, *choice]
        sample = [page.picture, page.whole, page.each, page.message]
        page.number.change(self.numbered, [page.number, *view], [page.seen, *sample], **LAST)
        if page.pad is not None:
            page.pad.change(self.drawn, [page.pad, *view], [page.seen, *sample], **LAST)
        page.without.change(self.look, view, sample, **LAST)
        page.kind.change(self.first, page.kind, [page.number, page.message], **QUIET)
        page.next.click(self.next, [page.kind, page.number], [page.number, page.message], **QUIET)

    def _connect_pairs(self) -> None:
        page = self.page
        gr.on(
            [page.path_tab.select, page.start.change, page.end.change],
            self.views.path,
            [page.start, page.end],
            page.way,
            **SLOW,
        )
        gr.on(
            [page.matrix_tab.select, page.measure.change],
            self.square,
            [page.measure, page.start, page.end],
            page.matrix,
            **SLOW,
        )
        page.matrix.click(
            self.pair, page.measure, [page.start, page.end, page.tiles, page.matrix], **QUIET
        )

    def opened(self, *values: Any) -> tuple[Any, ...]:
        """What fills a page that was just opened."""
        return (*self.switch(None, Seen(), "", *values), *self._known())

    def switch(self, shown: Any, seen: Seen, without: str, *values: Any) -> tuple[Any, ...]:
        """All that follows from what is on."""
        choice = self._choice(values)
        found = self.views.joined(choice, shown)
        looked = self.views.looked(choice, seen, without)
        return (
            found.confusion, found.accuracy, found.entropy, found.change,
            found.said or looked.said, found.shown, looked.picture, looked.whole, looked.each,
        )  # fmt: skip

    def look(self, seen: Seen, without: str, *values: Any) -> tuple[str, ...]:
        found = self.views.looked(self._choice(values), seen, without)
        return found.picture, found.whole, found.each, found.said

    def numbered(
        self, number: float | None, seen: Seen, without: str, *values: Any
    ) -> tuple[Any, ...]:
        seen = Seen(number)
        return (seen, *self.look(seen, without, *values))

    def drawn(self, drawing: str, seen: Seen, without: str, *values: Any) -> tuple[Any, ...]:
        seen = Seen(seen.number, drawing or "")
        return (seen, *self.look(seen, without, *values))

    def first(self, kind: str) -> tuple[Any, str]:
        return self.next(kind, None)

    def next(self, kind: str, after: float | None) -> tuple[Any, str]:
        """The number of the next sample of a class; a class without one leaves it as it is."""
        try:
            return next_of(self.session, kind, after), ""
        except IntarsiaError as error:
            return gr.skip(), pieces.message(str(error), bad=True)

    def settings(self, operator: str) -> list[Any]:
        return [
            gr.update(info=about(operator)),
            *(gr.update(visible=name == operator) for name in self.page.groups),
        ]

    def square(self, measure: str, one: str, other: str) -> str:
        return self.views.matrix(measure, (one, other))

    def pair(self, measure: str, event: gr.EventData) -> tuple[Any, ...]:
        """A cell was clicked: its two modules, for the path and as what is on."""
        one, other = str(event.one), str(event.other)
        return one, other, [one, other], self.views.matrix(measure, (one, other))

    def upload(self, given: Any) -> tuple[Any, ...]:
        """A file arrived: it is read, and deleted whatever it was."""
        path = Path(str((given or {}).get("path", ""))).resolve()
        if not path.is_relative_to(self.uploads.resolve()) or not path.is_file():
            said = pieces.message("the file did not arrive: choose it again", bad=True)
            return (None, said, *self._known())
        try:
            return (None, *self._loaded(lambda: load(self.session, path, path.name)))
        finally:
            path.unlink(missing_ok=True)

    def other(self, name: str) -> tuple[Any, ...]:
        return self._loaded(lambda: load_from_folder(self.session, name))

    def _loaded(self, loading: Callable[[], tuple[tuple[str, ...], str]]) -> tuple[Any, ...]:
        """What to say of a file; its modules come in switched off."""
        try:
            names, caution = loading()
        except IntarsiaError as error:
            return (pieces.message(str(error), bad=True), *self._known())
        said = f"loaded {', '.join(names)}, to be switched on"
        if caution:
            said += f"; its weights cannot be added to the others': {caution}"
        return (pieces.message(said), *self._known())

    def _known(self) -> tuple[Any, ...]:
        """The lists that grow when a module is loaded."""
        names, files = list(self.session.names), others(self.session)
        return (
            gr.update(choices=self.views.tiles()),
            gr.update(choices=names),
            gr.update(choices=names),
            gr.update(choices=self.views.classes()),
            gr.update(choices=files, value=None, visible=bool(files)),
        )

    def _choice(self, values: tuple[Any, ...]) -> Choice:
        tiles, operator, *settings = values
        mine = {
            setting: value
            for (name, setting, _), value in zip(self.page.controls, settings, strict=True)
            if name == operator
        }
        return Choice(tuple(tiles), operator, mine)
