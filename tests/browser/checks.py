"""What a page must not do, and what an accessibility checker finds in it."""

from collections.abc import Callable
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request

AT_HOME = {"file", "data", "blob", "about"}  # schemes that leave no machine
GRAVE = ("serious", "critical")
OVERHANGING = """(room) => {
  const root = document.documentElement, edge = root.clientWidth * room + 1;
  const scrolls = e => /auto|scroll/.test(getComputedStyle(e).overflowX);
  const held = e => e !== root && e !== document.body && (scrolls(e) || held(e.parentElement));
  const over = [...document.body.querySelectorAll("*")].filter(
    e => e.getBoundingClientRect().right > edge && !held(e.parentElement));
  const named = over.map(e => e.tagName + (e.id && "#" + e.id) + " " + e.textContent.slice(0, 40));
  return root.scrollWidth > edge ? ["page"].concat(named) : named;
}"""


def watch(context: BrowserContext, told: Callable[[str], None], served: str = "") -> None:
    """Tell every console error, script error and request to a host other than `served`."""

    def console(message: ConsoleMessage) -> None:
        if message.type == "error":
            told(f"console error: {message.text} ({message.location.get('url')})")

    def requested(request: Request | str) -> None:
        url = urlsplit(request if isinstance(request, str) else request.url)
        if url.scheme not in AT_HOME and url.netloc != served:
            told(f"request to another host: {url.geturl()}")

    context.on("console", console)
    context.on("weberror", lambda fault: told(f"script error: {fault.error}"))
    context.on("request", requested)
    context.on("page", lambda page: page.on("websocket", lambda socket: requested(socket.url)))


def grave_faults(
    page: Page, rules: list[str] | None = None, within: str | None = None
) -> list[str]:
    """The serious and critical faults that axe-core finds, a line for each rule.

    `rules` asks for these alone, `within` looks only inside what the selector finds.
    """
    fading = "Promise.allSettled(document.getAnimations().map(each => each.finished))"
    page.evaluate(f"{fading}.then(() => true)")
    options: dict[str, object] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = rules
    result = Axe().run(page, context=within, options=options).response["violations"]
    return [
        f"{fault['id']} ({fault['impact']}), {fault['help']}: "
        + "; ".join(" ".join(map(str, node["target"])) for node in fault["nodes"][:5])
        for fault in result
        if fault["impact"] in GRAVE
    ]


def overhanging(page: Page, room: float = 1) -> list[str]:
    """What stands out at the right of the window, where no part that scrolls by itself holds it.

    A page may cut off what hangs over, so that it does not scroll sideways; it is still not seen.
    With `room` the edge is so many windows from the left.
    """
    return page.evaluate(OVERHANGING, room)


def unfold(page: Page) -> None:
    """Open what a click would open."""
    page.locator("details").evaluate_all("all => all.forEach(d => d.open = true)")
