"""A written page in headless Chromium: what its console says, which text is cut off, and what it looks like.

    python -m tests.reports.browser REPORT.html FOLDER

writes a screenshot of each look into FOLDER, and says what is wrong with each; exit status 1 if anything is.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
NARROW, WIDE = 400, 1280  # CSS pixels
HEIGHT = 900
# Each element that has text of its own, and where the text goes beyond what a reader can get to: outside of the page, or
# of a box that hides what does not fit. A box that scrolls hides nothing.
CUT_OFF = """
() => {
  const cut = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const text = node.data.trim(), element = node.parentElement;
    if (!text || !element.checkVisibility() || ["STYLE", "SCRIPT", "TITLE"].includes(element.tagName)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    let left = 0, right = document.documentElement.clientWidth, scrolls = false;
    for (let box = element; box && box !== document.body && !scrolls; box = box.parentElement) {
      const style = getComputedStyle(box), overflow = style.overflowX;
      scrolls = overflow === "auto" || overflow === "scroll";
      if (overflow === "hidden" || overflow === "clip" || style.textOverflow === "ellipsis") {
        const rect = box.getBoundingClientRect();
        left = Math.max(left, rect.left);
        right = Math.min(right, rect.right);
      }
    }
    if (scrolls) continue;
    for (const rect of range.getClientRects()) {
      if (rect.right > right + 1 || rect.left < left - 1) {
        cut.push(`${element.tagName.toLowerCase()}: ${text.slice(0, 60)}`);
        break;
      }
    }
  }
  return cut;
}
"""

# Tables that are wider than their frame. The map of pairs and modes has two dozen columns, and keeps its first in sight.
SCROLLED = """
() => [...document.querySelectorAll(".scroll")]
  .filter(box => box.scrollWidth > box.clientWidth + 1 && !box.querySelector(".heat"))
  .map(box => box.textContent.trim().split("\\n")[0].slice(0, 60))
"""


@dataclass(frozen=True, slots=True)
class Look:
    """One way to open a page. ``scheme`` is light or dark, ``width`` in CSS pixels."""

    scheme: str
    width: int

    def __str__(self) -> str:
        return f"{self.scheme}-{self.width}"


LOOKS = tuple(Look(scheme, width) for scheme in ("light", "dark") for width in (NARROW, WIDE))


def chromium() -> str | None:
    return next(filter(None, map(shutil.which, CHROMIUM)), None)


@contextmanager
def browser() -> Iterator[Any]:
    """The machine's own Chromium; none is downloaded. Raises ModuleNotFoundError without Playwright."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Root has no sandbox to give; the pages are our own.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = playwright.chromium.launch(executable_path=chromium(), args=arguments)
        yield opened
        opened.close()


def faults_of(opened: Any, page_file: Path, look: Look, screenshot: Path | None = None) -> list[str]:
    """What is wrong with the page in this look, everything in it unfolded; a picture of it as it opens."""
    size = {"width": look.width, "height": HEIGHT}
    page = opened.new_page(viewport=size, color_scheme=look.scheme)
    faults: list[str] = []
    page.on("console", lambda message: faults.append(f"console {message.type}: {message.text}"))
    page.on("pageerror", lambda error: faults.append(f"error: {error}"))
    page.on("requestfailed", lambda request: faults.append(f"asks for {request.url}"))
    page.goto(page_file.resolve().as_uri())
    if screenshot is not None:
        page.screenshot(path=str(screenshot), full_page=True)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    faults += [f"only to be scrolled to: {text}" for text in page.evaluate(SCROLLED)]
    width = page.evaluate("document.documentElement.scrollWidth")
    if width > look.width:
        faults.append(f"the page is {width} pixels wide")
    faults += [f"cut off: {text}" for text in page.evaluate(CUT_OFF)]
    page.close()
    return faults


def main(page_file: Path, folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    is_wrong = False
    with browser() as opened:
        for look in LOOKS:
            picture = folder / f"{look}.png"
            faults = faults_of(opened, page_file, look, picture)
            is_wrong |= bool(faults)
            print(f"{picture}: {'; '.join(faults) or 'nothing wrong'}")
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
