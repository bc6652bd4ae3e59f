"""The demo: all parts on this machine."""
