"""The guard against a second monitor on the topics of a running monitor."""

from streaming.daemons.query.sole_program import Kind
from streaming.wire.own_groups import own_group

# The consumer group of all monitors of a topic prefix; the prefix is put before it.
GROUP_ID = own_group("monitor")
MONITOR = Kind("monitor", GROUP_ID, "Two monitors would notify each activation twice.", "monitor ready")
