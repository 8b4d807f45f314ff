"""The page in a real Chromium: by mouse, by keyboard, wide and narrow, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Page, browser, needs_chromium
from many_points import make_large_run

from autodo.report.page import write_report

pytestmark = needs_chromium

CONTRAST = """
(() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const rgba = (text) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = text;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data].map((v) => v / 255);
  };
  const over = (top, bottom) => [0, 1, 2].map((k) => top[k] * top[3] + bottom[k] * (1 - top[3]));
  const luminance = (c) => {
    const [r, g, b] = c.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (node) => {
    const layers = [];
    for (let n = node; n; n = n.parentElement) {
      const colour = rgba(getComputedStyle(n).backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), [1, 1, 1]);
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    const text = walker.currentNode.data.trim();
    if (!text || node.closest("script,style,.sr,.zero,[hidden],option")) continue;
    if (!node.checkVisibility()) continue;
    const style = getComputedStyle(node);
    const inside = node.namespaceURI.endsWith("svg");
    const behind = background(inside ? node.closest("svg").parentElement : node);
    const colour = rgba(inside ? style.fill : style.color);
    const [a, b] = [luminance(over(colour, behind)), luminance(behind)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    seen++;
    if (ratio < 4.5) poor.push(`${ratio.toFixed(2)} ${node.tagName} ${text}`);
  }
  return { poor, seen };
})()
"""


@pytest.fixture(scope="module")
def tab() -> Iterator[Page]:
    with browser() as page:
        yield page


@pytest.fixture(scope="module")
def report(run: Path) -> Path:
    return write_report(run)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_stands_without_errors_requests_or_sideways_scrolling(
    tab: Page, report: Path, width: int, dark: bool
) -> None:
    tab.errors.clear()
    tab.requests.clear()
    tab.open(report, width=width, dark=dark)
    assert tab.errors == []
    outside = [url for url in tab.requests if not url.startswith("data:")]
    assert outside == [report.resolve().as_uri()]
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    contrast = tab.evaluate(CONTRAST)
    assert contrast["poor"] == []
    assert contrast["seen"] > 200


def test_hostile_names_are_shown_and_run_nothing(tab: Page, report: Path) -> None:
    tab.open(report)
    assert tab.evaluate("window.hacked") is None
    assert tab.evaluate("document.querySelector('table.classes tbody th').textContent").startswith(
        "</script><img"
    )
    assert tab.evaluate("document.querySelectorAll('img[src=x]').length") == 0


def test_the_gallery_is_used_by_keyboard(tab: Page, report: Path) -> None:
    tab.open(report)
    tab.evaluate("document.querySelector('#suspicious .card').focus()")
    tab.press("Enter")
    assert tab.evaluate("document.querySelector('dialog').open")
    place = "document.querySelector('dialog [role=status]').textContent"
    assert tab.evaluate(place).startswith("1 of ")
    tab.press("ArrowRight")
    assert tab.evaluate(place).startswith("2 of ")
    tab.press("ArrowLeft")
    tab.press("ArrowLeft")
    total = tab.evaluate(place).split()[2].rstrip(":")
    assert tab.evaluate(place).startswith(f"{total} of {total}")
    tab.press("Escape")
    assert not tab.evaluate("document.querySelector('dialog').open")
    assert tab.evaluate("document.activeElement.className") == "card"  # the focus comes back


def test_filters_and_orders_change_what_is_shown(tab: Page, report: Path) -> None:
    tab.open(report)
    chosen = """(() => {
        const select = document.querySelector('#suspicious select');
        select.value = [...select.options].find(o => o.text.startsWith('3')).value;
        select.dispatchEvent(new Event('change'));
        return [...document.querySelectorAll('#suspicious .card .given')].map(n => n.textContent);
    })()"""
    found = tab.evaluate(chosen)
    assert found
    assert set(found) == {"3"}
    tab.evaluate("document.querySelectorAll('table.classes thead button')[1].click()")
    cells = tab.evaluate(
        "[...document.querySelectorAll('table.classes tbody tr')]"
        ".map(row => Number(row.cells[1].dataset.value))"
    )
    assert cells == sorted(cells, reverse=True)


def test_a_point_of_the_map_tells_its_image_label_and_prediction(tab: Page, report: Path) -> None:
    tab.open(report)
    tab.evaluate("document.querySelector('#map-plot canvas').scrollIntoView({block: 'center'})")
    tab.evaluate("document.querySelector('#map-plot canvas').focus()")
    tab.press("n")
    said = tab.evaluate("document.querySelector('.tip').textContent")
    assert "label:" in said
    assert "network:" in said
    assert tab.evaluate("document.querySelector('#map-plot [role=status].sr').textContent") == said
    tab.press("Escape")
    assert tab.evaluate("document.querySelector('.tip').hidden")


def test_hovering_a_curve_tells_the_epoch(tab: Page, report: Path) -> None:
    tab.open(report)
    plot = "document.querySelector('#curves-plots svg[tabindex]')"
    tab.evaluate(f"{plot}.scrollIntoView({{block: 'center'}})")
    box = tab.evaluate(
        f"(() => {{ const b = {plot}.getBoundingClientRect();"
        "return [b.left, b.top, b.width, b.height]; })()"
    )
    tab.mouse("mouseMoved", box[0] + box[2] - 12, box[1] + box[3] / 2)
    said = tab.evaluate("document.querySelector('.tip').textContent")
    assert said.startswith("epoch 100")
    assert "test error" in said


def test_a_hundred_thousand_points_stay_responsive(tab: Page, tmp_path: Path) -> None:
    report = write_report(make_large_run(tmp_path / "run", points=100_000))
    tab.open(report)
    tab.evaluate("document.querySelector('#points-plot canvas').scrollIntoView({block: 'center'})")
    tab.evaluate("document.querySelector('#points-plot canvas').focus()")
    # Zooms and hovers, each with its frame: the median is what a hand feels.
    taken = tab.evaluate(
        """(async () => {
        const canvas = document.querySelector('#points-plot canvas');
        const box = canvas.getBoundingClientRect();
        const times = [];
        for (let k = 0; k < 21; k++) {
            const at = { clientX: box.left + 100 + 20 * k, clientY: box.top + 200, bubbles: true };
            const start = performance.now();
            const turn = { ...at, deltaY: k % 2 ? 120 : -120, cancelable: true };
            canvas.dispatchEvent(new WheelEvent('wheel', turn));
            canvas.dispatchEvent(new PointerEvent('pointermove', { ...at, pointerType: 'mouse' }));
            await new Promise(requestAnimationFrame);
            times.push(performance.now() - start);
        }
        return times.sort((a, b) => a - b)[10];
    })()"""
    )
    assert taken < 250
    shown = tab.evaluate("document.querySelector('#points-plot .tools [role=status]').textContent")
    assert shown == "100,000 of 100,000 shown"


def test_it_prints_on_white_whatever_the_theme(tab: Page, report: Path) -> None:
    tab.open(report, dark=True)
    printed = tab.call("Page.printToPDF", printBackground=True)
    assert len(printed["data"]) > 50_000
    tab.call("Emulation.setEmulatedMedia", media="print")
    hidden = tab.evaluate("getComputedStyle(document.querySelector('nav.sections')).display")
    corner = tab.evaluate(
        "[...document.querySelector('#map-plot canvas').getContext('2d')"
        ".getImageData(1, 1, 1, 1).data]"
    )
    tab.call("Emulation.setEmulatedMedia", media="")
    assert hidden == "none"
    assert corner == [255, 255, 255, 255]


def test_stepping_brings_a_point_outside_the_view_into_it(tab: Page, report: Path) -> None:
    tab.open(report)
    tab.evaluate("document.querySelector('#map-plot canvas').scrollIntoView({block: 'center'})")
    tab.evaluate("document.querySelector('#map-plot canvas').focus()")
    # The page hides a tip when it is scrolled, and hears of the scrolling with the next frame.
    tab.evaluate("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")
    for _ in range(8):
        tab.press("+")
    for _ in range(5):
        tab.press("n")
        inside = tab.evaluate(
            "(() => { const t = document.querySelector('.tip').getBoundingClientRect();"
            "const b = document.querySelector('#map-plot canvas').getBoundingClientRect();"
            "return t.left > b.left - 300 && t.right < b.right + 300 && t.bottom > b.top - 40; })()"
        )
        assert inside
        assert not tab.evaluate("document.querySelector('.tip').hidden")
