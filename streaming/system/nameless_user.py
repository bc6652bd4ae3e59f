"""Name and home, for Java, of a user without an entry in the passwd file. OpenShift's containers have such users.

Without help, Java uses "?" for the user's name and home. Ivy refuses this home, and Hadoop's log-in fails without a
name. Python takes the home from the environment. This home is often `/`, where such a user cannot write.
"""

import os
import pwd
import tempfile
from pathlib import Path
from typing import Any

from streaming.errors import UserError


def is_nameless() -> bool:
    """Returns whether the user of this process has no entry in the passwd file."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return True
    return False


def home() -> Path:
    """Returns the user's home; if there is none, a folder for temporary files that only this user can write to.

    Raises:
        UserError: Another user has made the folder.
    """
    try:
        found = Path.home()
    except RuntimeError:
        found = Path("/")
    if found != Path("/") or os.access(found, os.W_OK):
        return found
    own = Path(tempfile.gettempdir(), f"queue-activation-{os.getuid()}")
    own.mkdir(mode=0o700, exist_ok=True)
    made = own.lstat()
    if made.st_uid != os.getuid() or made.st_mode & 0o022:
        raise UserError(f"Others can write to {own}. Set QUEUE_ACTIVATION_CACHE to a folder of your own.")
    return own


def jvm_options() -> list[str]:
    """Returns Java's options for a user without an entry in the passwd file; no options for other users."""
    return [f"-Duser.home={tempfile.gettempdir()}", f"-Duser.name={_name()}"] if is_nameless() else []


def log_in(jvm: Any) -> None:
    """Gives Hadoop a name for a user without an entry in the passwd file, which Hadoop would otherwise look up."""
    if is_nameless():
        users = jvm.org.apache.hadoop.security.UserGroupInformation
        users.setLoginUser(users.createRemoteUser(_name()))


def _name() -> str:
    return f"uid-{os.getuid()}"
