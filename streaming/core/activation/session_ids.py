"""The ids of sessions. Those of one program are the program's id, a slash, and a name that no other of them has.

So the program that starts readers knows a session id with which it can end all sessions of a reader program.
"""

_SEPARATOR = "/"


def session_id_of(program_id: str, name: str) -> str:
    """Returns the id of one session of a program; `name` has no slash."""
    return f"{program_id}{_SEPARATOR}{name}"


def program_of(session_id: str) -> str:
    """Returns the id of the program with whose end a session ends; its own id if it belongs to no program."""
    return session_id.rpartition(_SEPARATOR)[0] or session_id
