"""HTML from Python values, with all text escaped.

`tag` makes an element from other elements and from any other values, which become text. Only the
results of `tag` are inserted unescaped, so that no feature name or label can become markup.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

STYLE = Path(__file__).with_name("style.css")
_LONGEST = 120  # characters of a value

# content security policy: inline styles, and nothing else
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_VOID = {"meta", "br"}
# characters that are not allowed in HTML and SVG, even escaped
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


# children of an element: Markup is inserted as it is, texts and numbers are escaped
Content: TypeAlias = "str | float | Sequence[Content] | None"


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


def tag(name: str, /, *children: Content, **attributes: str | float | None) -> Markup:
    """An element; children that are not Markup are escaped, None is skipped, lists are joined.

    ``class_`` is the attribute class, other underscores become hyphens; attributes that are None
    are left out.

    Examples
    --------
    >>> tag("p", "a < b", tag("br"), class_="note")
    '<p class="note">a &lt; b<br></p>'
    """
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            words.append(f'{key.rstrip("_").replace("_", "-")}="{escaped(value)}"')
    opening = f"<{' '.join(words)}>"
    if name in _VOID:
        return Markup(opening)
    return Markup(f"{opening}{joined(children)}</{name}>")


def joined(children: Content) -> Markup:
    """Concatenate elements and texts."""
    if isinstance(children, Markup):
        return children
    if children is None:
        return Markup("")
    if isinstance(children, Sequence) and not isinstance(children, str):
        return Markup("".join(joined(child) for child in children))
    return Markup(escaped(children))


def escaped(value: str | float) -> str:
    """A text or number as escaped text."""
    return html.escape(_CONTROL.sub("\ufffd", str(value)), quote=True)


def short(value: object, longest: int = _LONGEST) -> str:
    """A value as text, truncated to `longest` characters."""
    text = " ".join(str(value).split())
    return text if len(text) <= longest else text[: longest - 1] + "\u2026"


def number(value: float, digits: int = 4) -> str:
    """A number in readable form.

    >>> number(123456.7), number(0.25), number(3.2e-7), number(float("nan"))
    ('123,457', '0.25', '3.2e-07', 'unknown')
    """
    value = float(value)
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "\u221e" if value > 0 else "\u2212\u221e"
    if value == round(value) and abs(value) < 1e15:
        return f"{value:,.0f}"
    if 1e3 <= abs(value) < 1e9:
        return f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"
    return f"{value:.{digits if abs(value) >= 1e-4 else digits - 1}g}"


def counted(weight: float) -> str:
    """A number of rows, which need not be whole if rows have weights."""
    return f"{weight:,.0f}" if weight == round(weight) else number(weight, 3)


def percent(share: float) -> str:
    """A fraction in percent, never rounded to 0 or 100 % unless it is exactly that.

    >>> percent(0.1234), percent(1.0), percent(0.99996)
    ('12.3 %', '100 %', '99.996 %')
    """
    if math.isnan(share):
        return "unknown"
    value = 100.0 * share
    if value in (0.0, 100.0):
        return f"{value:.0f} %"
    for digits in range(1, 8):
        if 0.0 < float(f"{value:.{digits}f}") < 100.0:
            return f"{value:.{digits}f} %"
    return f"{value:.2g} %"


def plural(count: int, word: str) -> str:
    """A number with a noun in the right form.

    >>> plural(1, "row"), plural(2000, "class")
    ('1 row', '2,000 classes')
    """
    ending = "" if count == 1 else "es" if word.endswith("s") else "s"
    return f"{count:,} {word}{ending}"


@dataclass(frozen=True)
class Section:
    """A section of the page: title, introduction, and elements."""

    title: str
    lead: str
    body: Sequence[Content]

    @property
    def name(self) -> str:
        """Anchor for links."""
        return re.sub("[^a-z]+", "-", self.title.lower()).strip("-")

    def html(self) -> Markup:
        """The section as an element."""
        lead = tag("p", self.lead, class_="lead")
        return tag("section", tag("h2", self.title), lead, self.body, id=self.name)


@dataclass(frozen=True)
class Absent:
    """A section that does not apply to this model, and why."""

    title: str
    reason: str


@dataclass
class Table:
    """A table; columns whose names are in `numbers` are right-aligned."""

    columns: Sequence[str]
    numbers: Sequence[str] = ()
    rows: list[Markup] = field(default_factory=list)

    def add(self, *cells: str | float, class_: str | None = None) -> None:
        """Add a row."""
        right = [column in self.numbers for column in self.columns]
        made = [
            tag("td", cell, class_="n" if flush else None)
            for cell, flush in zip(cells, right, strict=True)
        ]
        self.rows.append(tag("tr", *made, class_=class_))

    def html(self) -> Markup:
        """The table, which scrolls sideways on narrow screens."""
        head = [tag("th", c, class_="n" if c in self.numbers else None) for c in self.columns]
        table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *self.rows))
        return tag("div", table, class_="table", tabindex="0")


def tiles(facts: Iterable[tuple[str, str, str]]) -> Markup:
    """Key figures: name, value, and a comment."""
    made = [
        tag("div", tag("dt", name), tag("dd", figure), tag("dd", word, class_="word"))
        for name, figure, word in facts
    ]
    return tag("dl", *made, class_="tiles")


def note(*words: Content) -> Markup:
    """A sentence in small print."""
    return tag("p", *words, class_="note")


def bar(share: float) -> Markup:
    """A bar whose length is a fraction, for table cells."""
    width = round(100.0 * min(1.0, max(0.0, share)), 1)
    return tag("span", tag("span", style=f"width:{width}%"), class_="bar")


def beside(*parts: Content) -> Markup:
    """Figures side by side if the screen is wide enough."""
    return tag("div", *parts, class_="beside")


def page(
    title: str, subtitle: str, head: Content, found: Sequence[Section | Absent], foot: str
) -> Markup:
    """The whole document."""
    sections = [one for one in found if isinstance(one, Section)]
    absent = [one for one in found if isinstance(one, Absent)]
    if absent:
        items = [tag("li", tag("b", one.title), ": ", one.reason) for one in absent]
        lead = "Sections that do not apply to this model or this data."
        sections.append(Section("Left out", lead, [tag("ul", *items)]))
    links = [tag("li", tag("a", one.title, href=f"#{one.name}")) for one in sections]
    top = tag("header", tag("h1", title), tag("p", subtitle, class_="subtitle"), head)
    body = tag(
        "body",
        tag(
            "main",
            top,
            tag("nav", tag("ul", *links), aria_label="Contents"),
            *[one.html() for one in sections],
            tag("footer", foot),
        ),
    )
    style = Markup(f"<style>{STYLE.read_text(encoding='utf-8')}</style>")
    metas = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
    ]
    first = tag("head", *metas, tag("title", f"{title}: report"), style)
    return Markup(f"<!DOCTYPE html>\n{tag('html', first, body, lang='en')}\n")
