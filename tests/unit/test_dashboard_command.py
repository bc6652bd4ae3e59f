"""The command `dashboard`: what it refuses, each in one sentence, before it serves anything."""
