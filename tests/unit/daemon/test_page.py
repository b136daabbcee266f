"""The page: what can be held against its files, and what hostile events do in a browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Final

import httpx
import pytest
import trio

import pulsarcast.daemon
from pulsarcast.daemon.app import ALL, ASSETS
from tests.support.browser import Browser, find_chromium
from tests.support.daemon_in_process import daemon, play

FOLDER: Final = Path(pulsarcast.daemon.__file__).parent / "page"
HTML, CSS, JS = ((FOLDER / name).read_text() for name in ("page.html", "page.css", "page.js"))
NAMESPACE: Final = "http://www.w3.org/2000/svg"
"""Looks like an address, and is a name."""


class Elements(HTMLParser):
    """Every element of the page with its attributes, and the texts of scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(HTML)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem is not None and data.strip():
            self.texts.append(data)

    def values(self, name: str) -> list[str]:
        return [attributes[name] for _, attributes in self.elements if name in attributes]


PAGE: Final = Elements()


def test_scripts_and_styles_are_files_of_their_own() -> None:
    assert PAGE.texts == []
    names = {name for _, attributes in PAGE.elements for name in attributes}
    assert not [name for name in names if name.startswith("on") or name == "style"]
    assert "style" not in {tag for tag, _ in PAGE.elements}
    # With `style-src 'self'` a browser ignores a style that is set as an attribute.
    assert '"style"' not in JS
    assert not re.search(r"\bstyle:", JS)


def test_nothing_comes_from_elsewhere() -> None:
    for text in (HTML, CSS, JS):
        own = _without_comments(text.replace(NAMESPACE, ""))
        assert not re.findall(r"(?:[a-z]+:)?//[\w.-]+", own)
    for address in (*PAGE.values("src"), *PAGE.values("href")):
        assert address.startswith("data:image/svg+xml,") or address.removeprefix("/") in ASSETS
    assert "url(" not in CSS
    assert "@import" not in CSS


def test_every_path_that_it_asks_for_is_in_the_api() -> None:
    asked = {
        re.sub(r"\$\{\w+\}", "{topic}", path.replace("${cid}", "{event}")).partition("?")[0]
        for path in re.findall(r"ask\([\"`]([^\"`]+)[\"`]\)", JS)
    }
    offered = {each.path for each in ALL if each.method == "GET" and each.scope == "read"}
    events = {"/v1/topics/{topic}/events", "/v1/events/{event}"}
    node = {"/v1/status", "/v1/peers", "/v1/peer-names"}
    assert asked == {*node, "/v1/topics", "/v1/listings", *events}
    assert asked <= offered
    assert JS.count("fetch(") == 1
    assert JS.count("ask(") == len(asked) + 1, "one more is its definition"
    assert "method:" not in JS, "it only reads"


@pytest.mark.parametrize(
    "way",
    ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(",
     "DOMParser", "setHTML", "srcdoc", "createContextualFragment", "javascript:", "import("],
)  # fmt: skip
def test_no_text_becomes_markup_or_code(way: str) -> None:
    assert way not in JS
    assert way not in HTML


def test_what_the_script_names_is_on_the_page() -> None:
    ids = PAGE.values("id")
    assert len(ids) == len(set(ids))
    named = set(re.findall(r"\$\(\"([\w-]+)\"\)", JS)) | {"topic-row", "found-row", "peer-row"}
    assert named <= set(ids)
    # Every blank is filled in: its name stands before a colon, quoted where it must be.
    for name in set(PAGE.values("data-is")):
        assert re.search(rf"(?:\"{name}\"|\b{name}):", JS), name


def test_drawings_and_fields_have_names_for_those_who_cannot_see_them() -> None:
    for tag, attributes in PAGE.elements:
        if tag in ("svg", "input", "meter"):
            is_named_later = "id" in attributes and f'$("{attributes["id"]}")' in JS
            decorates = attributes.get("aria-hidden") == "true"
            assert "aria-label" in attributes or decorates or is_named_later, attributes
    assert JS.count('setAttribute("aria-label"') == 2  # sparklines and trees; events have their own
    assert "prefers-color-scheme: dark" in CSS
    assert ":focus-visible" in CSS


SCHEMES: Final = [
    dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", part))
    for part in CSS.split("@media (prefers-color-scheme: dark)")[:2]
]


@pytest.mark.parametrize("colours", SCHEMES, ids=["light", "dark"])
def test_texts_and_marks_stand_out_from_what_is_behind_them(colours: dict[str, str]) -> None:
    for ink, ground in product(("ink", "dim", "accent", "good", "bad"), ("panel", "ground")):
        assert _contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    for name in (f"p{place}" for place in range(6)):
        assert _contrast(colours[name], colours["panel"]) >= 3, name


def _contrast(one: str, other: str) -> float:
    """WCAG 2.2's contrast ratio."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    octets = bytes.fromhex(colour.removeprefix("#"))
    parts = [each / 255 for each in octets]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _without_comments(text: str) -> str:
    return re.sub(r"(?m)(?:^|\s)//.*$|/\*.*?\*/|<!--.*?-->", "", text)


# In a browser.

HOSTILE: Final = (
    '<img src=x onerror="window.ran = 1">',
    "<script>window.ran = 2</script>",
    "</pre></template><svg onload='window.ran = 3'>",
    '"><iframe srcdoc="<script>parent.ran = 4</script>">',
    "javascript:window.ran=5",
    "\u202e\u0000\u2028gnp.exe",
    "${window.ran = 6}",
)
WRITTEN: Final = "document.querySelector('[data-is=event-payload]').textContent"
STRANGERS: Final = "document.querySelectorAll('main img, main script, iframe, [onload]').length"


@pytest.mark.slow
def test_nothing_of_a_hostile_event_runs_or_becomes_markup(tmp_path: Path) -> None:
    program = find_chromium()
    if program is None:
        pytest.skip("Chromium is not installed")

    async def scene() -> None:
        async with daemon(tmp_path) as desk, desk.client() as client:
            await _publish_hostile(client)
            await client.put(f"/v1/peer-names/{desk.running.peer}", json={"name": "me"})
            url = (await client.post("/v1/page")).json()["url"]
            await trio.to_thread.run_sync(_look_at_hostile_events, program, url)

    play(scene, s_max=100)


async def _publish_hostile(client: httpx.AsyncClient) -> None:
    name = HOSTILE[0]
    made = await client.post("/v1/topics", json={"name": name})
    assert made.status_code == 201, made.text
    topic = made.json()["id"]
    async with client.stream(
        "GET", f"/v1/topics/{topic}/subscribe", params={"name": "<i onclick=alert(1)>reader"}
    ) as answer:
        assert answer.status_code == 200
    for text in HOSTILE:
        event = {"payload": text, "name": HOSTILE[1], "attributes": {"<b>": HOSTILE[0]}}
        event["ack"] = "accepted"
        published = await client.post(f"/v1/topics/{topic}/events", json=event)
        assert published.status_code == 201, published.text


def _look_at_hostile_events(program: str, url: str) -> None:
    with Browser(program) as browser:
        browser.open(url)
        browser.wait_for("document.querySelectorAll('#events g').length === 7")
        browser.evaluate("document.getElementById('dag').focus()")
        browser.press("Home")
        shown = []
        for _ in HOSTILE:
            shown.append(browser.evaluate(WRITTEN))
            assert browser.evaluate(STRANGERS) == 0
            browser.press("ArrowRight")
        # As it was written, but for signs that would change what is around them.
        assert shown == [*HOSTILE[:5], "\ufffd\ufffd\ufffdgnp.exe", HOSTILE[6]]
        _walk_back(browser)
        assert HOSTILE[0] in browser.evaluate("document.getElementById('topics').textContent")
        assert "reader" in browser.evaluate("document.getElementById('topics').textContent")
        # Peers are shown by the names that the node's user gave them, and by no other.
        assert browser.evaluate("document.querySelector('[data-is=peer]').innerText")[:4] == "me …"
        assert browser.evaluate("document.querySelector('#lanes li').innerText").strip() == "me"
        assert browser.evaluate("typeof window.ran") == "undefined"
        assert browser.complaints() == []
        # The check sees what it is there to see.
        browser.evaluate("document.querySelector('main').append(new Image())")
        assert browser.evaluate(STRANGERS) == 1


def _walk_back(browser: Browser) -> None:
    """From the newest event to its parent, and from there to the first."""
    browser.evaluate("document.querySelector('#event-parents button').click()")
    browser.wait_for("document.querySelectorAll('#walk > li').length === 1")
    browser.evaluate("document.getElementById('walk-on').click()")
    browser.wait_for("document.querySelectorAll('#walk > li').length === 6")
    assert HOSTILE[0] in browser.evaluate("document.getElementById('walk').textContent")
    assert browser.evaluate(STRANGERS) == 0


@pytest.mark.slow
def test_without_a_session_it_says_how_to_get_one(tmp_path: Path) -> None:
    program = find_chromium()
    if program is None:
        pytest.skip("Chromium is not installed")

    def look(url: str) -> None:
        with Browser(program) as browser:
            browser.open(url)
            browser.wait_for("!document.getElementById('locked').hidden")
            assert "pulsarcast open" in browser.evaluate("document.body.innerText")
            assert browser.evaluate("document.getElementById('main').hidden")

    async def scene() -> None:
        async with daemon(tmp_path) as desk:
            await trio.to_thread.run_sync(look, desk.url)
            await trio.to_thread.run_sync(look, f"{desk.url}/?code=used-before")

    play(scene, s_max=100)
