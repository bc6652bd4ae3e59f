"""The ids of sessions. The sessions of a program have ids of the program's id, a slash, and a different name each.

A program that starts reader programs can end all sessions of a reader program with the id of that program.
"""

_SEPARATOR = "/"


def session_id_of(program_id: str, name: str) -> str:
    """Returns the id of a session of a program. The name has no slash."""
    return f"{program_id}{_SEPARATOR}{name}"


def program_of(session_id: str) -> str:
    """Returns the id of the session's program; the session's own id without a program."""
    return session_id.rpartition(_SEPARATOR)[0] or session_id
