"""The guard against a second router on the same topics."""

from streaming.daemons.query.sole_program import Kind
from streaming.wire.own_groups import own_group

GROUP_ID = own_group("router")
ROUTER = Kind("router", GROUP_ID, "Two routers would decide twice about each message.", "router ready")
