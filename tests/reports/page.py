"""A written page as the tests look at it."""

from __future__ import annotations

import re
from html.parser import HTMLParser


class Page(HTMLParser):
    """Collects tags, attributes, and text outside <style>."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.source = text
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    @property
    def loads_nothing(self) -> bool:
        """Whether the page asks for no file but itself."""
        links = [v for name, v in self.attributes if name.split(":")[-1] in ("href", "src", "srcset", "data", "action")]
        asking = {"script", "link", "iframe", "img", "object", "base"} & set(self.tags)
        return (
            all(link.startswith("#") for link in links)
            and not asking
            and not re.search(r"@import|url\((?!#)", self.source)
        )
