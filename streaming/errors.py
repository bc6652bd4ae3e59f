"""The one error a user is meant to read."""


class UserError(Exception):
    """Something the user can put right: the message says what is wrong and what to do.

    The command line prints it without a traceback and ends with exit code 2.
    """
