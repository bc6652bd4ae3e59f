"""Session ids. They begin with the id that a reader program has in its environment."""

import os
import uuid

from streaming.core.activation.session_ids import session_id_of

SESSION_ID_VARIABLE = "QUEUE_ACTIVATION_SESSION_ID"


def new_session_id() -> str:
    """Returns the id of a new session. It begins with the program's id if the environment has that id."""
    name = str(uuid.uuid4())
    program_id = os.environ.get(SESSION_ID_VARIABLE)
    return session_id_of(program_id, name) if program_id else name
