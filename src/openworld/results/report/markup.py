"""Build HTML and SVG. All text that is not `Html` is escaped, so names of files and classes cannot inject code."""

import html
import json
from typing import Any


class Html(str):
    """Text that is already HTML and must not be escaped."""

    __slots__ = ()


VOID = frozenset({"img", "meta", "input", "br"})
"""Elements without content and without an end tag."""


def escape(value: Any) -> str:
    """Escape a value for text and attributes. Bytes of a file name that are not UTF-8 become question marks."""
    return value if isinstance(value, Html) else html.escape(str(value).encode(errors="replace").decode())


def join(*content: Any) -> Html:
    """Join contents. None is left out."""
    return Html("".join(escape(part) for part in content if part is not None))


def tag(name: str, /, *content: Any, **attributes: Any) -> Html:
    """Return an element. `class_` is class, `data_row` is data-row. An attribute that is None or False is left out.

    >>> tag("p", "a < b", class_="note", title=None)
    '<p class="note">a &lt; b</p>'
    """
    written = []
    for key, value in attributes.items():
        if value is not None and value is not False:
            key = key.rstrip("_").replace("_", "-")
            written.append(f" {key}" if value is True else f' {key}="{escape(value)}"')
    opening = f"<{name}{''.join(written)}>"
    return Html(opening if name in VOID else f"{opening}{join(*content)}</{name}>")


def json_data(name: str, data: Any) -> Html:
    """Return an element with JSON data for the script. No text in it can end the element or begin a comment."""
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return Html(f'<script type="application/json" id="{name}">{text}</script>')


def table(header: tuple[Any, ...], rows: list[tuple[Any, ...]], class_: str | None = None) -> Html:
    """Return a table whose first column names the row. On a narrow screen the table scrolls by itself."""
    head = tag("tr", *(tag("th", cell, scope="col") for cell in header))
    body = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    return tag("div", tag("table", tag("thead", head), tag("tbody", *body), class_=class_), class_="scroll")
