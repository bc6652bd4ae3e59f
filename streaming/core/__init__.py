"""The state machines: pure, standard library only, time passed in."""
