"""Instants, ages and numbers as the pages show them. The script shows instants in the browser's time zone."""

import re

from markupsafe import Markup, escape

from streaming.core.times import date_and_time, iso_ms, readable_time
from streaming.system import wall_clock
from streaming.system.ages import age, today

# An instant as `ages.instant_utc` writes it: without a date if it is of today.
_INSTANT = re.compile(r"\b(?:(\d{4}-\d\d-\d\d) )?(\d\d:\d\d:\d\d) UTC\b")
UNKNOWN = Markup('<span class="unknown" title="not known">unknown</span>')


def element(iso: str | None, none: str = "never") -> Markup:
    """Returns an instant as an HTML element; for None, the word `none`."""
    if iso is None:
        return Markup('<span class="none">{}</span>').format(none)
    _, time = date_and_time(iso)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(iso, readable_time(iso), f"{time} UTC")


def ago(iso: str | None, none: str = "never") -> Markup:
    """Returns how long ago an instant was, as an HTML element; for None, the word `none`."""
    if iso is None:
        return Markup('<span class="none">{}</span>').format(none)
    if (at_ms := iso_ms(iso)) is None:  # any program may have written the record
        return element(iso)
    words = f"{age(at_ms, wall_clock.now_ms())} ago"
    return Markup('<time class="ago" datetime="{}" title="{}">{}</time>').format(iso, readable_time(iso), words)


def duration(duration_ms: int) -> str:
    """Returns a duration, to a tenth of a second below a minute."""
    return f"{duration_ms / 1000:.1f}".removesuffix(".0") + " s" if duration_ms < 60_000 else age(0, duration_ms)


def sentence(text: str) -> Markup:
    """Returns a text as HTML, with elements for commands, which are in backticks, and for instants."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a name or a line of a log has a backtick
        return _with_instants(text)
    code = Markup("<code>{}</code>")
    return Markup("").join(
        code.format(part) if number % 2 else _with_instants(part) for number, part in enumerate(parts)
    )


def capital(text: str) -> str:
    """Returns a sentence that begins with a capital letter."""
    return f"{text[:1].upper()}{text[1:]}"


def _with_instants(text: str) -> Markup:
    """Returns a text with its instants as HTML elements, so that all instants of the page are in one time zone."""
    parts, end = [], 0
    for found in _INSTANT.finditer(text):
        parts += [escape(text[end : found.start()]), _element_of(*found.groups())]
        end = found.end()
    return Markup("").join([*parts, escape(text[end:])])


def _element_of(date: str | None, clock: str) -> Markup:
    words = f"{date} {clock} UTC" if date else f"{clock} UTC"
    iso = f"{date or today()}T{clock}Z"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(iso, readable_time(iso), words)


def count(number: int | None) -> str | Markup:
    """Returns a number with commas; for None, the word "unknown"."""
    return UNKNOWN if number is None else f"{number:,}"
