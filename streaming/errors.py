"""The error whose message is written for users."""


class UserError(Exception):
    """A problem that the user can fix. The message says what is wrong and what to do.

    The command line prints the message without a traceback and exits with code 2.
    """
