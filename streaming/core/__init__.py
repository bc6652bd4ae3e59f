"""The state machines. They are pure: they use only the standard library, and the caller passes in the time."""
