"""The report page in a real browser: good to read on any screen, and nothing in it runs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.browser import BROWSER, Browser
from tests.reports import hostile_report, report_of, reports, solved

from dfwtrace.report import render, write_report


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One for all tests: its start takes seconds."""
    found = subprocess.run([BROWSER, "check"], capture_output=True, text=True)
    if found.returncode:
        pytest.skip("no Chromium (tools/browser.sh says what to do)")
    browser = Browser(found.stdout.strip(), tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    contents = {
        "hostile": hostile_report(),
        "long": report_of(solved("regression", max_iter=130, certify_every=10), tol=1e-3),
        **reports(),
    }
    for kind, content in contents.items():
        write_report(folder / f"{kind}.html", content)
    return {kind: folder / f"{kind}.html" for kind in contents}


# How a text stands out from what is behind it, as WCAG 2 has it: the least over all texts.
CONTRAST = """
(() => {
  const parse = c => (c.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number)
    .map(v => c.startsWith("color(srgb") ? 255 * v : v);
  const light = c => c.slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  const worst = {text: [99, ""], mark: [99, ""], texts: 0, marks: 0};
  const note = (kind, colour, e) => {
    const [a, b] = [light(parse(colour)), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst[kind][0]) worst[kind] = [ratio, e.outerHTML.slice(0, 80)];
  };
  for (const e of document.body.querySelectorAll("*")) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    const style = getComputedStyle(e);
    if (own && !["title", "desc"].includes(e.tagName)) {
      note("text", e.tagName === "text" ? style.fill : style.color, e);
      worst.texts += 1;
    }
    for (const part of ["fill", "stroke"])
      if ((e.getAttribute(part) || "").includes("--tone")) {
        note("mark", style[part], e);
        worst.marks += 1;
      }
  }
  return worst;
})()
"""
# Elements that stick out of the window and are not in a box that scrolls by itself.
STICKING_OUT = """
[...document.body.querySelectorAll("*")]
  .filter(e => !e.closest(".scroll > *") && e.getBoundingClientRect().right > innerWidth + 0.5)
  .map(e => e.outerHTML.slice(0, 120))
"""
# Chart texts that lie over each other or leave their chart.
COLLIDING = """
[...document.querySelectorAll("svg.chart")].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")]
    .map(t => [t.textContent, t.getBoundingClientRect()]);
  const out = texts.filter(([, b]) => b.left < frame.left - 1 || b.right > frame.right + 1
    || b.top < frame.top - 1 || b.bottom > frame.bottom + 1).map(([t]) => "outside: " + t);
  texts.forEach(([s, a], i) => texts.slice(i + 1).forEach(([t, b]) => {
    if (a.left < b.right - 1 && b.left < a.right - 1
        && a.top < b.bottom - 3 && b.top < a.bottom - 3)
      out.push(s + " | " + t);
  }));
  return out.map(t => svg.querySelector("title").textContent + ": " + t);
})
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize(
    "kind",
    [
        "hostile",
        "long",
        "few classes",
        "many classes",
        "searched",
        "one target",
        "targets",
        "empty",
    ],
)
def test_a_page_is_good_to_read(
    kind: str, width: int, dark: bool, browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages[kind], width, dark)
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(STICKING_OUT) == []
    assert browser.evaluate(COLLIDING) == []
    contrast = browser.evaluate(CONTRAST)
    assert contrast["texts"] > 20
    assert (contrast["marks"] > 10) == (kind != "empty")
    assert contrast["text"][0] >= 4.5, contrast
    assert contrast["mark"][0] >= 3.0, contrast
    ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (int(re.findall(r"\d+", ground)[0]) < 80) == dark
    assert browser.evaluate("typeof window.pwned") == "undefined"
    assert browser.evaluate("document.scripts.length + document.images.length") == 0
    assert browser.complaints() == []


def test_the_page_itself_forbids_scripts_and_the_network(browser: Browser, tmp_path: Path) -> None:
    """Even if a name had found its way out of the text."""
    text = render(report_of(solved("regression", max_iter=2)))
    intruder = (
        "<script>window.pwned=1</script><img src=x onerror='window.pwned=1'>"
        "<link rel=stylesheet href='http://127.0.0.1:9/x.css'>"
    )
    page = tmp_path / "page.html"
    page.write_text(text.replace("<main>", "<main>" + intruder), "utf-8")
    browser.open(page, 1200, dark=False)
    assert browser.evaluate("document.scripts.length") == 1
    assert browser.evaluate("typeof window.pwned") == "undefined"
    assert "Content Security Policy" in str(browser.complaints())
