"""The record of service-progress: how far the router of an instance has committed its work.

At its start, a router compares the record with its checkpoint. So it does not decide again if the checkpoint is lost or
is an older copy.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from streaming.wire.record_decoders import decoder_of

# The key of the only record of an instance.
KEY = b"router"

Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class ProgressRecord(Struct):
    """The newest committed batch of the router.

    Attributes:
        generation: The generation of its checkpoint.
        batch: The batch's number in the checkpoint.
        ends: Topic, without the topic prefix -> partition -> the offset at which the batch ended.
        update_time: The time at which the batch was committed: ISO 8601, UTC.
    """

    generation: Natural
    batch: Natural
    ends: dict[str, dict[str, Natural]]
    update_time: str


encode_progress = msgspec.json.Encoder().encode
decode_progress = decoder_of(ProgressRecord)
