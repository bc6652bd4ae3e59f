"""Pictures of numbers and of timelines, as SVG. The stylesheet has the colours, which follow the theme."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from markupsafe import Markup, escape

from streaming.cli.dashboard.timeline import Span, Timeline
from streaming.core.numbers import plural
from streaming.core.times import date_and_time, iso_time, readable_time

# The period of all sparklines.
SPARK_MS = 300_000
_SPARK_WIDTH, _SPARK_HEIGHT = 90, 20
_WIDTH, _LABELS, _LANE, _GAP = 1_000, 150, 22, 6
_UNREAD_LANE = 60
_HALF_DIAMOND = 6
# The number of readers in the picture, latest first.
_MOST_READERS = 12
# The smallest width of a mark.
_DOT = 4
# The distances between the ticks of the axis, and the largest number of ticks.
_TICKS_MS, _MOST_TICKS = (10_000, 60_000, 300_000, 600_000), 7
# The name of a tick that is nearer to an edge is beside its line.
_NEAR_EDGE = 30


def sparkline(points: Sequence[tuple[int, int]], until_ms: int, known_ms: int | None = None) -> Markup:
    """Returns the picture of a number in the period before an instant; an empty text if the number is not known.

    Args:
        points: (time in ms, the number from then on), oldest first.
        until_ms: The end of the period.
        known_ms: The time until which the number is known; None: until the end of the period.
    """
    if not points:
        return Markup()
    from_ms = until_ms - SPARK_MS
    before = sum(at < from_ms for at, _ in points)
    shown = [(min(max(at, from_ms), until_ms), value) for at, value in points[max(0, before - 1) :]]
    most = max(value for _, value in shown)
    known_ms = until_ms if known_ms is None else max(known_ms, shown[-1][0])
    corners, scale = [], max(1, most)
    for (at, value), (ends, _) in zip(shown, [*shown[1:], (known_ms, 0)], strict=True):
        y = _SPARK_HEIGHT - 1 - value / scale * (_SPARK_HEIGHT - 2)
        corners += [f"{(x - from_ms) / SPARK_MS * _SPARK_WIDTH:.1f},{y:.1f}" for x in (at, ends)]
    return Markup(
        '<svg class="spark" viewBox="0 0 {} {}" width="{}" height="{}" role="img" aria-label="at most {} unread">'
        '<polyline points="{}"/></svg>'
    ).format(_SPARK_WIDTH, _SPARK_HEIGHT, _SPARK_WIDTH, _SPARK_HEIGHT, f"{most:,}", " ".join(corners))


def picture(line: Timeline) -> Markup:
    """Returns the picture of a timeline."""
    return _Picture(line).svg()


class _Picture:
    """Draws lanes below each other."""

    def __init__(self, line: Timeline) -> None:
        self._line = line
        self._y = 0
        self._labels: list[Markup] = []
        self._parts: list[Markup] = []

    def svg(self) -> Markup:
        line = self._line
        known_ms = line.until_ms if line.rows_until_ms is None else max(line.rows_until_ms, line.rows_from_ms)
        unread = self._steps(line.unread, "unread", _UNREAD_LANE, known_ms)
        self._lane("unread", chain(self._unknown(line.rows_from_ms, known_ms), unread), _UNREAD_LANE)
        if not line.is_silent:
            self._lane("arrivals", self._dots(((at, f"{count:,} arrived") for at, count in line.arrivals), "arrival"))
            self._lane("received", self._dots(((at, f"{count:,} received") for at, count in line.receives), "receive"))
            self._lane("found nothing", self._dots(((at, "found the queue empty") for at in line.empties), "empty"))
        quiet = self._bars(line.quiet, "quiet", "quiet window: no messages count as accumulating")
        self._lane("quiet window", chain(self._unknown(line.rows_from_ms, known_ms), quiet))
        suppressed = self._bars(line.suppressed, "suppressed", "a reader was requested and is awaited")
        self._lane("reader requested", chain(self._unknown(line.rows_from_ms, known_ms), suppressed))
        self._lane("activations", self._activations())
        if line.members:
            members = self._steps(line.members, "members", _LANE, line.until_ms)
            self._lane("members", chain(self._unknown(line.members_from_ms, line.until_ms), members))
        self._readers()
        height = self._y + 24
        # The names of the lanes do not scroll, so they are a picture of their own.
        return Markup(
            '<div class="timeline"><svg class="labels" viewBox="0 0 {} {}" aria-hidden="true">{}</svg>'
            '<svg class="lanes" viewBox="{} 0 {} {}" role="img" aria-labelledby="timeline-name">'
            '<title id="timeline-name">What happened to the queue between {} and {}</title>{}{}</svg></div>'
        ).format(
            _LABELS,
            height,
            Markup("").join(self._labels),
            _LABELS,
            _WIDTH - _LABELS,
            height,
            readable_time(iso_time(line.from_ms)),
            readable_time(iso_time(line.until_ms)),
            self._axis(),
            Markup("").join(self._parts),
        )

    def _x(self, at_ms: int) -> float:
        line = self._line
        share = (at_ms - line.from_ms) / max(1, line.until_ms - line.from_ms)
        return round(_LABELS + min(1.0, max(0.0, share)) * (_WIDTH - _LABELS), 1)

    def _lane(self, name: str, marks: Iterable[Markup], height: int = _LANE, kind: str = "") -> None:
        label = Markup('<text class="lane {}" x="8" y="{}">{}</text>').format(kind, self._y + height / 2 + 4, name)
        base = Markup('<line class="base" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(
            _LABELS, _WIDTH, self._y + height, self._y + height
        )
        self._labels.append(label)
        self._parts += [base, *marks]
        self._y += height + _GAP

    def _dots(self, dated: Iterable[tuple[int, str]], kind: str) -> Iterator[Markup]:
        """Yields a mark for each instant. Marks that would overlap become one mark with all their words."""
        merged: dict[float, list[str]] = {}
        for at_ms, words in dated:
            merged.setdefault(round(self._x(at_ms) / _DOT) * _DOT, []).append(words)
        for x, found in merged.items():
            words = found[0] if len(found) == 1 else f"{plural(len(found), 'report')}: {', '.join(found[:3])}"
            yield self._mark(kind, x, _DOT - 1, words)

    def _bars(self, spans: Iterable[Span], kind: str, words: str) -> Iterator[Markup]:
        for span in spans:
            begin, end = self._x(span.from_ms), self._x(span.until_ms or self._line.until_ms)
            yield self._mark(kind, begin, max(2.0, round(end - begin, 1)), words)

    def _unknown(self, from_ms: int, until_ms: int) -> Iterator[Markup]:
        """Yields the marks of the times before and after the known values of a lane."""
        line = self._line
        spans = [
            Span(begin, end, "unknown")
            for begin, end in ((line.from_ms, from_ms), (until_ms, line.until_ms))
            if begin < end
        ]
        yield from self._bars(spans, "unknown", "not known: no record of this time was found")

    def _mark(self, kind: str, x: float, width: float, words: str) -> Markup:
        rect = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>')
        return rect.format(kind, x, self._y + 4, width, _LANE - 8, words)

    def _steps(self, points: Sequence[tuple[int, int]], kind: str, height: int, known_ms: int) -> Iterator[Markup]:
        if not points:
            return
        most, base = max(value for _, value in points), self._y + height
        scale = (height - 6) / max(1, most)
        corners = [f"{self._x(points[0][0])},{base}"]
        for number, (at_ms, value) in enumerate(points):
            until_ms = points[number + 1][0] if number + 1 < len(points) else known_ms
            y = round(base - value * scale, 1)
            corners += [f"{self._x(at_ms)},{y}", f"{self._x(until_ms)},{y}"]
        corners.append(f"{self._x(known_ms)},{base}")
        yield Markup('<polygon class="{}" points="{}"><title>at most {}</title></polygon>').format(
            kind, " ".join(corners), f"{most:,}"
        )
        self._labels.append(
            Markup('<text class="most" x="{}" y="{}">{}</text>').format(_LABELS - 6, self._y + 12, f"{most:,}")
        )

    def _activations(self) -> Iterator[Markup]:
        middle = self._y + _LANE / 2
        for at_ms, activation in self._line.activations:
            x = min(max(self._x(at_ms), _LABELS + _HALF_DIAMOND), _WIDTH - _HALF_DIAMOND)
            reason = activation.reason or activation.event_type
            yield Markup('<path class="activation {}" d="M{} {}l6 7l-6 7l-6 -7z"><title>{}</title></path>').format(
                reason, x, middle - 7, f"#{activation.sequence}: {reason}, {activation.unread_messages:,} unread"
            )

    def _readers(self) -> None:
        readers = self._line.readers
        for reader in readers[-_MOST_READERS:]:
            marks = list(self._bars([reader.life], "life", f"{reader.name} lives"))
            for span in reader.spans:
                marks += self._bars([span], span.what, f"{reader.name} {span.what}")
            self._lane(short(reader.name), marks, kind="reader")
        if len(readers) > _MOST_READERS:
            self._lane(f"and {len(readers) - _MOST_READERS:,} earlier", ())

    def _axis(self) -> Markup:
        line, parts = self._line, []
        length_ms = line.until_ms - line.from_ms
        every_ms = next((each for each in _TICKS_MS if length_ms < each * _MOST_TICKS), _TICKS_MS[-1])
        for at_ms in range(-(-line.from_ms // every_ms) * every_ms, line.until_ms + 1, every_ms):
            x = self._x(at_ms)
            anchor = "start" if x < _LABELS + _NEAR_EDGE else "end" if x > _WIDTH - _NEAR_EDGE else "middle"
            parts.append(
                Markup(
                    '<line class="grid" x1="{}" x2="{}" y1="0" y2="{}"/><text class="tick" text-anchor="{}" x="{}" '
                    'y="{}" data-instant="{}">{}</text>'
                ).format(x, x, self._y, anchor, x, self._y + 18, iso_time(at_ms), date_and_time(iso_time(at_ms))[1])
            )
        return Markup("").join(parts)


def short(name: str) -> str:
    """Returns the name of a reader as the picture shows it."""
    return escape(name if len(name) <= 16 else f"{name[:7]}…{name[-7:]}")
