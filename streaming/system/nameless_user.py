"""Lets Java run for a user whose id has no entry in the passwd file, as OpenShift gives one to each container.

Java then has "?" for the user's name and home. Ivy refuses that home, and Hadoop's log-in fails without a name. The
home of Python is that of the environment, often `/`, where such a user cannot write.
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
    """Returns Java's options for such a user, or none."""
    return [f"-Duser.home={tempfile.gettempdir()}", f"-Duser.name={_name()}"] if is_nameless() else []


def log_in(jvm: Any) -> None:
    """Tells Hadoop the name of such a user, before it asks the system for one."""
    if is_nameless():
        users = jvm.org.apache.hadoop.security.UserGroupInformation
        users.setLoginUser(users.createRemoteUser(_name()))


def _name() -> str:
    return f"uid-{os.getuid()}"
