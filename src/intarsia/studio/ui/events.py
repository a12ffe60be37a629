"""What happens when something on the page is used."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from intarsia.errors import CompositionError, IntarsiaError
from intarsia.studio.answers import next_of
from intarsia.studio.ui import pieces
from intarsia.studio.ui.layout import Layout
from intarsia.studio.ui.views import Choice, Seen
from intarsia.studio.uploads import Loaded, load, load_from_folder, others

QUIET: dict[str, Any] = {
    "queue": False,  # answered at once, by one request
    "show_progress": "hidden",
    "api_visibility": "private",
}
SLOW: dict[str, Any] = {
    **QUIET,
    "show_progress": "minimal",
}  # paler if long, by studio.css
LAST: dict[str, Any] = {"trigger_mode": "always_last", **SLOW}


class Acting:
    """The functions behind a page's controls; `uploads` is where files arrive."""

    def __init__(self, page: Layout, uploads: Path) -> None:
        self.page, self.uploads = page, uploads
        self.views, self.session = page.views, page.session

    def connect(self, blocks: gr.Blocks) -> None:
        """Say who is told when what changes."""
        page, choice = self.page, self.page.what()
        gr.on(
            [artifact.change for artifact in choice],
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
        self._connect_files()
        first = {**SLOW, "show_progress_on": [page.accuracy]}
        blocks.load(self.opened, choice, [*page.everything(), *page.known()], **first)

    def _connect_files(self) -> None:
        page = self.page
        told = [page.message, *page.known()]
        # As it arrived: read by Gradio, a file would leave a second one behind.
        page.file.upload(self.upload, page.file, [page.file, *told], preprocess=False, **QUIET)
        page.take.click(self.other, page.other, told, **QUIET)
        chosen = [page.tiles, page.start, page.end, page.without]
        page.remove.click(self.remove, [page.guest, *chosen], told, **QUIET)

    def _connect_sample(self, choice: list[Any]) -> None:
        page = self.page
        view = [page.seen, page.without, *choice]
        sample = [page.picture, page.merged, page.each, page.message]
        cleared = [] if page.pad is None else [page.pad]
        page.number.change(
            self.numbered, [page.number, *view], [page.seen, *sample, *cleared], **LAST
        )
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
        result = self.views.joined(choice, shown)
        looked = self.views.looked(choice, seen, without)
        return (
            result.confusion, result.accuracy, result.entropy, result.change,
            result.said or looked.said, result.shown, looked.picture, looked.merged, looked.each,
        )  # fmt: skip

    def look(self, seen: Seen, without: str, *values: Any) -> tuple[str, ...]:
        result = self.views.looked(self._choice(values), seen, without)
        return result.picture, result.merged, result.each, result.said

    def numbered(
        self, number: float | None, seen: Seen, without: str, *values: Any
    ) -> tuple[Any, ...]:
        """A test sample was chosen: it takes the place of a drawing, if there was one."""
        seen = Seen(number)
        cleared = () if self.page.pad is None else ("",)
        return (seen, *self.look(seen, without, *values), *cleared)

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
            gr.update(info=self.views.about(operator)),
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

    def other(self, name: str | None) -> tuple[Any, ...]:
        if not name:
            said = pieces.message("no file is chosen: choose one of the list first", bad=True)
            return (said, *self._known())
        return self._loaded(lambda: load_from_folder(self.session, name))

    def remove(
        self, name: str | None, tiles: list[str], start: str, end: str, without: str
    ) -> tuple[Any, ...]:
        """Let go of a module that was loaded; what was chosen of it on the page goes, too."""
        try:
            if not name:
                raise CompositionError("no module is chosen: choose one of the list first")
            self.session.remove(name)
        except IntarsiaError as error:
            return (pieces.message(str(error), bad=True), *self._known())
        names, classes = self.session.names, [key for _, key in self.views.classes()]
        left = (
            [tile for tile in tiles if tile != name],
            start if start != name else names[0],
            end if end != name else names[-1],
            without if without in classes else "",
        )
        return (pieces.message(f"removed {name}"), *self._known(left))

    def _loaded(self, loading: Callable[[], Loaded]) -> tuple[Any, ...]:
        """What to say of a file; its modules come in switched off."""
        try:
            said = pieces.message(loading().said)
        except IntarsiaError as error:
            said = pieces.message(str(error), bad=True)
        return (said, *self._known())

    def _known(self, values: tuple[Any, ...] = ()) -> tuple[Any, ...]:
        """The lists that grow when a module is loaded, and what is chosen of them."""
        names, files = list(self.session.names), others(self.session)
        guests = [name for name in names if name not in self.session.given]
        kept = [{"value": value} for value in values] or [{}] * 4
        lists = (self.views.tiles(), names, names, self.views.classes())
        return (
            *(gr.update(choices=c, **value) for c, value in zip(lists, kept, strict=True)),
            gr.update(choices=files, value=None, visible=bool(files)),
            gr.update(visible=bool(files)),
            gr.update(choices=guests, value=guests[-1] if guests else None),
            gr.update(visible=bool(guests)),
        )

    def _choice(self, values: tuple[Any, ...]) -> Choice:
        tiles, operator, *settings = values
        mine = {
            setting: value
            for (name, setting, _), value in zip(self.page.controls, settings, strict=True)
            if name == operator
        }
        return Choice(tuple(tiles), operator, mine)
