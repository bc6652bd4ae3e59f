"""The ids of sessions. The id of a program's session is the program's id, a slash, and a name, as `program/name`.

An activator knows only the id of a reader program that it has started. This id suffices to end all the program's
sessions.
"""

_SEPARATOR = "/"


def session_id_of(program_id: str, name: str) -> str:
    """Returns the id of a session of a program. The name has no slash."""
    return f"{program_id}{_SEPARATOR}{name}"


def program_of(session_id: str) -> str:
    """Returns the id of the session's program; the session's id if it has no program."""
    return session_id.rpartition(_SEPARATOR)[0] or session_id
