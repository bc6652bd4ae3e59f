"""The ids of the sessions of a reader program, whose own id is in its environment."""

import os
import uuid

from streaming.core.activation.session_ids import session_id_of

SESSION_ID_VARIABLE = "QUEUE_ACTIVATION_SESSION_ID"


def new_session_id() -> str:
    """Returns the id of a new session. It begins with the program's id if the environment has that id."""
    name = str(uuid.uuid4())
    program_id = os.environ.get(SESSION_ID_VARIABLE)
    return session_id_of(program_id, name) if program_id else name
