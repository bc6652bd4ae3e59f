"""The guard against a second observer of the same topics. Two observers would do no harm, but twice the work."""

from streaming.daemons.query.sole_program import Kind
from streaming.wire.own_groups import own_group

# The consumer group of all observers of a topic prefix; the prefix is put before it.
GROUP_ID = own_group("observer")
# An observer prints this line after the first look at its groups. Programs wait for this line.
READY = "observer ready"
OBSERVER = Kind("observer", GROUP_ID, "Two observers would do the same work twice.", READY, waits=True)
