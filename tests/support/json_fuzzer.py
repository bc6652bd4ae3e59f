"""Turns valid values into anything that a record may contain: wrong fields, wrong syntax, wrong bytes, nonsense."""

import json
from random import Random
from typing import Any

# Deeper than the limits of both decoders. The tests do not cover depths between the two limits.
TOO_DEEP = 20_000

ODD_TEXTS = (
    "",
    "\0",
    "\n",
    "\x7f",
    "\x85",
    "\u202e",
    "\ufeff",
    "\uffff",
    "\U0010ffff",
    "e\u0301",
    "\u00df",
    "\uff21",
    "😀",
    "'\"\\/",
)
ODD_NUMBERS = (
    0,
    -1,
    1.0,
    0.5,
    -0.0,
    1e308,
    2**31,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64,
    10**30,
    -(10**30),
    10**9,
    10**12,
)
ODD_BYTES = (
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\0",
    b"\xef\xbb\xbf",
    b"\\",
    b'"',
    b"{",
    b"]",
    b",",
)
ODD_JSON = (
    "NaN",
    "-Infinity",
    '"\\ud800"',
    '"\\udc00\\ud800"',
    "01",
    "1e999999",
    "1" * 5_000,
    "tru",
    "'a'",
    "[1,]",
    "\x01",
)
NONSENSE = (
    b"",
    b"null",
    b"[]",
    b"0",
    b'"Q"',
    b"{}",
    b"\x00\x01\x02",
    b"\x1f\x8b\x08\x00",
    b"\xff\xfe{\x00}\x00",
    b" " * 70_000,
)


class JsonFuzzer:
    """Turns valid values into anything that a record may contain.

    Args:
        seed: The same seed gives the same values.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311  (no secret)

    def any_value(self, fields: dict[str, Any]) -> bytes | None:
        """Returns the fields as a valid or nearly valid value, or nonsense."""
        random = self.random
        valid = json.dumps(fields, ensure_ascii=random.random() < 0.5).encode()
        return random.choice(
            (
                lambda: valid,
                lambda: json.dumps(self.nearly(fields)).encode(),
                lambda: json.dumps(self.nearly(fields)).encode(),
                lambda: self.syntax(fields).encode(),
                lambda: self.some_bytes(valid),
                self.nonsense,
            )
        )()

    def nearly(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Returns the fields with one or two replaced, removed or added."""
        random, fields = self.random, dict(fields)
        for _ in range(random.choice((1, 1, 2))):
            name = random.choice([*fields, "type", "count", "unread", "activation", "unknown"])
            if random.random() < 0.2:
                fields.pop(name, None)
            else:
                fields[name] = self._odd_value()
        return fields

    def syntax(self, fields: dict[str, Any]) -> str:
        """Returns text that is not quite JSON, or unusual JSON."""
        random, text = self.random, json.dumps(fields)
        odd = random.choice(ODD_JSON)
        return random.choice(
            (
                text[: random.randrange(len(text))],
                text[:-1] + f', "unknown": {odd}}}',
                text[:-1] + f', "{random.choice(list(fields))}": {random.choice((odd, "1", "null"))}}}',
                f" \n{text}\t" + random.choice(("", text, "\0", ",")),
                text.replace('"', "'"),
                text.replace(":", random.choice(("=", "::", " : ")), 1),
                json.dumps([fields]),
            )
        )

    def some_bytes(self, valid: bytes) -> bytes:
        """Returns the value with some bytes replaced or inserted."""
        value = bytearray(valid)
        for _ in range(self.random.randint(1, 3)):
            at = self.random.randrange(len(value))
            odd = self.random.choice(ODD_BYTES)
            value[at : at + self.random.choice((0, 1, len(odd)))] = odd
        return bytes(value)

    def nonsense(self) -> bytes | None:
        """Returns None or bytes without a meaning, and now and then a deep or large value."""
        random = self.random
        if random.random() < 0.02:
            deep = b'{"queue": "x", "unknown": ' + b"[" * TOO_DEEP + b"]" * TOO_DEEP + b"}"
            return random.choice((deep, b"x" * 65_537, b"\0" * 300_000))
        return random.choice((None, random.randbytes(random.randrange(200)), random.choice(NONSENSE)))

    def _odd_value(self) -> Any:
        random = self.random
        text = random.choice(ODD_TEXTS)
        return random.choice(
            (
                None,
                True,
                random.choice(ODD_NUMBERS),
                text,
                text * random.choice((2, 129, 257, 387)),
                "q" + text,
                ".".join(["part"] * random.randrange(6)),
                [[]],
                {"status": text},
                {},
                json.loads("[" * 50 + "]" * 50),
                "x" * random.choice((128, 129, 256, 257, 386, 387, 60_000)),
            )
        )
