"""The studio of modules with an encoder: a picture is chosen or dropped, and modules switched."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from socket import socket
from threading import Thread
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

import intarsia as ia
from intarsia.studio import Session
from intarsia.studio.web.guard import HOST, StudioAddress
from intarsia.studio.web.server import application, listening
from tiny_encoder import TinyEncoder, feature_bank, pictures

from .checks import grave_faults
from .conftest import Opened

DROP = """(field, bytes) => {
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([new Uint8Array(bytes)], "dropped.png", { type: "image/png" }));
  field.dispatchEvent(new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer }));
}"""


@pytest.fixture(scope="module")
def trained() -> tuple[ia.Bank, ia.Data]:
    return feature_bank()


@pytest.fixture(scope="module")
def bank(trained: tuple[ia.Bank, ia.Data]) -> ia.Bank:
    return trained[0]


@pytest.fixture(scope="module")
def page(
    trained: tuple[ia.Bank, ia.Data], opened: Opened, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Page]:
    """Of the modules as files hold them."""
    pytest.importorskip("gradio")
    bank, data = trained
    bank.save(folder := tmp_path_factory.mktemp("pictures") / "bank")
    with served(Session(ia.Bank.load(folder, encoder=TinyEncoder()), data)) as address:
        page = opened(address, served=urlsplit(address).netloc)
        expect(page.locator("#confusion svg")).to_be_visible()
        page.get_by_role("tab", name="One sample").click()
        yield page


@contextmanager
def served(session: Session) -> Iterator[str]:
    """The address of its studio, in a thread: a process would import torch and Gradio anew."""
    import uvicorn

    started: Queue[uvicorn.Server] = Queue()

    async def serving(listener: socket, address: StudioAddress) -> None:
        # Where no loop runs, Gradio would leave some.
        with application(session, "pictures", address) as app:
            settings = uvicorn.Config(
                app, ws="none", log_level="error", timeout_graceful_shutdown=1
            )
            server = uvicorn.Server(settings)
            started.put(server)
            await server.serve([listener])

    with listening(HOST, 0) as listener:
        address = StudioAddress(HOST, listener.getsockname()[1])
        thread = Thread(target=lambda: asyncio.run(serving(listener, address)), daemon=True)
        thread.start()
        server = started.get(timeout=60)
        yield address.url
        server.should_exit = True
        thread.join(timeout=30)
        assert not thread.is_alive()


def test_a_picture_is_answered_by_the_modules_that_are_on(
    page: Page, bank: ia.Bank, tmp_path: Path
) -> None:
    image = pytest.importorskip("PIL.Image")
    x = pictures(3)[0]
    for number in (1, 2):
        image.fromarray(x[number].transpose(1, 2, 0)).save(tmp_path / f"{number}.png")
    verdict, seen = page.locator("#joined-answer .verdict"), page.locator("#sample-seen")
    expect(page.locator("#sample-draw")).to_have_count(0)
    expect(seen).to_contain_text("features of custom TinyEncoder")

    page.locator("#sample-picture input[type=file]").set_input_files(tmp_path / "1.png")
    expect(seen).to_contain_text("your picture")
    expect(seen.locator("img")).to_be_visible()
    expect(verdict).to_contain_text(f"{probability(list(bank), x[1]):.3f}")
    page.locator(f"#module-tiles input[name='{bank.names[1]}']").uncheck()
    less = [module for module in bank if module.name != bank.names[1]]
    expect(verdict).to_contain_text(f"{probability(less, x[1]):.3f}")
    expect(page.locator("#module-answers .answer.off")).to_have_count(1)
    page.get_by_role("button", name="All on").click()
    expect(verdict).to_contain_text(f"{probability(list(bank), x[1]):.3f}")

    field = page.locator("#sample-picture button").first
    field.evaluate(DROP, list((tmp_path / "2.png").read_bytes()))
    expect(verdict).to_contain_text(f"{probability(list(bank), x[2]):.3f}")

    bad = tmp_path / "bad.png"
    bad.write_text("no picture")
    (tmp_path / "some.txt").write_text("no picture")
    for name, words in (("some.txt", "is not a picture that"), ("bad.png", "is not a picture:")):
        page.locator("#sample-picture input[type=file]").set_input_files(tmp_path / name)
        expect(page.locator("#message .bad")).to_contain_text(f"{name}: {words}")
    expect(seen).to_contain_text("your picture")
    assert grave_faults(page, within="#tabs") == []
    page.get_by_role("button", name="Next sample").click()
    expect(seen).to_contain_text("test sample 1")


def probability(modules: list[ia.Module], pixels: object) -> float:
    """Of the likeliest class, by the sum of logits."""
    return float(ia.compose(modules, "logits").predict_proba([pixels]).max())
