"""The checks can fail: planted faults are found, and a page without faults passes."""

import pytest
from playwright.sync_api import Page

from .checks import grave_faults, overhanging
from .conftest import Opened

SOUND = """<!doctype html><html lang="en"><title>sound</title>
<style>@media (prefers-color-scheme: dark) {p {color: #333; background: #000}}</style>
<main><h1>Sound</h1><p>Nothing is wrong here.</p></main></html>"""
FAULTS = {
    "image-alt": '<img src="data:,">',
    "color-contrast": '<p style="color: #ccc; background: #fff">pale</p>',
    "svg-img-alt": '<svg role="img" width="9" height="9"></svg>',
    "label": "<label>name</label><input>",
}
DEEDS = {
    "console error: a fault of ours": "console.error('a fault of ours')",
    "request to another host: http://127.0.0.1:9/x.png": "fetch('http://127.0.0.1:9/x.png')",
    "request to another host: ws://127.0.0.1:9/": "new WebSocket('ws://127.0.0.1:9/')",
    "script error: uncaught": "throw new Error('uncaught')",
}


@pytest.fixture(scope="module")
def page(opened: Opened, tmp_path_factory: pytest.TempPathFactory) -> Page:
    path = tmp_path_factory.mktemp("pages") / "page.html"
    path.write_text(SOUND)
    return opened(path.as_uri(), viewport={"width": 360, "height": 640})


def test_a_sound_page_has_no_grave_fault(page: Page) -> None:
    assert grave_faults(page) == []
    assert overhanging(page) == []


def test_faults_of_one_scheme_are_seen_in_it_alone(page: Page) -> None:
    page.emulate_media(color_scheme="dark")
    (result,) = grave_faults(page, ["color-contrast"])
    assert result.startswith("color-contrast (serious)")
    page.emulate_media(color_scheme="light")


def test_axe_finds_planted_faults(page: Page) -> None:
    page.set_content(SOUND.replace("</main>", "".join(FAULTS.values()) + "</main>"))
    assert sorted(result.split()[0] for result in grave_faults(page)) == sorted(FAULTS)


def test_what_is_too_wide_is_found_also_where_it_is_cut_off(page: Page) -> None:
    wide = '<div style="width: 500px">wide</div></main>'
    page.set_content(SOUND.replace("</main>", wide))
    assert overhanging(page) == ["page", "DIV wide"]
    page.set_content(
        SOUND.replace("</main>", wide).replace("<main>", '<main style="overflow: clip">')
    )
    assert overhanging(page) == ["DIV wide"]
    page.set_content(
        SOUND.replace("</main>", wide).replace("<main>", '<main style="overflow: auto">')
    )
    assert overhanging(page) == []


def test_what_a_page_does_wrong_is_told(page: Page, faults: list[str]) -> None:
    with page.expect_websocket():  # the slowest of them
        page.set_content(SOUND + f"<script>{'; '.join(DEEDS.values())}</script>")
    page.goto("about:blank")
    for told in DEEDS:
        assert any(fault.startswith(told) for fault in faults), (told, faults)
    faults.clear()
