"""The guard against a second router on the topics of a running one."""

from streaming.daemons.query.sole_program import Kind

# The consumer group of all routers of a topic prefix; the prefix is put before it.
GROUP_ID = "queue-activation-router"
ROUTER = Kind("router", GROUP_ID, "Two routers would decide twice about each message.", "router ready")
