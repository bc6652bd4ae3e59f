"""The guard against a second router on the topics of a running one."""

from streaming.daemons.query.sole_program import Kind
from streaming.wire.topics import ROUTERS_GROUP

GROUP_ID = ROUTERS_GROUP
ROUTER = Kind("router", GROUP_ID, "Two routers would decide twice about each message.", "router ready")
