"""HTML taken apart, and what must not come through it alive."""

from __future__ import annotations

from html.parser import HTMLParser

EVIL = "<script>alert('x')</script>\"&"
VOID = {"meta", "br", "hr", "input", "img", "link"}


class Seen(HTMLParser):
    """The tags, attributes and texts of a page, balanced. ``attributes``: (tag, name, value)."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str, str]] = set()
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.tags.add(tag)
        self.attributes |= {(tag, name, value or "") for name, value in attrs}

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
