"""The characters of names: of databases, services, routes, broker instances and conversations.

Names are checked where they come in, in commands and envelopes, because they go on into views, XML, logs and reports.
"""

import re

from msgspec import Struct

from streaming.wire.record_decoders import InvalidRecordError

# Control characters, and the two other characters of the first plane that XML 1.0 does not allow. Valid UTF-8 has no
# surrogates.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ufffe\uffff]")


def check_names(record: Struct, fields: tuple[str, ...]) -> None:
    """Raises InvalidRecordError if a name has a forbidden character, or a broker instance is not ASCII.

    Args:
        record: The record.
        fields: The fields of the record that are names.
    """
    for field in fields:
        name = getattr(record, field)
        if name is None or (name.isascii() and name.isprintable()):
            continue
        if _FORBIDDEN.search(name):
            raise InvalidRecordError(f"`{field}` has a control character: {name!r}"[:300])
        # Broker instances are compared in lower case, and some letters become two.
        if field.endswith("broker_instance") and not name.isascii():
            raise InvalidRecordError(f"`{field}` has characters other than ASCII: {name!r}"[:300])
