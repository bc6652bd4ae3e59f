"""Command lines and options in sentences for users. Each command line works when a user pastes it unchanged.

A command of `queue-activation` notes its options here. A program that only uses the clients notes nothing.
"""

import os
import shlex
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

COMMAND = "queue-activation"
# Set by `run` for its programs: `--checkpoints` if it has that option, otherwise empty.
UNDER_RUN_VARIABLE = "QUEUE_ACTIVATION_UNDER_RUN"
# The options that `run` itself has, with the same meaning for each of its programs.
OPTIONS_OF_RUN = frozenset(
    (
        "--bootstrap-servers",
        "--topic-prefix",
        "--kafka-config",
        "--log-format",
        "--take-over",
        "--stop-programs",
        "--config",
    )
)
# The options of the programs of `run` that its option `--checkpoints` replaces.
_PLACES = ("--checkpoint-location", "--state-directory")
_SERVERS = "--bootstrap-servers"
_LOCAL = ("localhost", "127.0.0.1")

_Value = TypeVar("_Value")


@dataclass
class Given:
    """The values that the user has given to the command that runs.

    Attributes:
        program: The command.
        config: The file of --config.
        servers: The bootstrap servers; None if the command takes none.
        options: Option that says where Kafka is -> its value, if the value is not the option's default.
        advised: The advice that sentences have given so far.
    """

    program: str
    config: str | None = None
    servers: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    advised: set[str] = field(default_factory=set)


_given: list[Given] = []
# The program that sentences are about, if several programs run in this process.
_about: ContextVar[str | None] = ContextVar("about", default=None)
# The advice that one answer of several has given, such as a page of the dashboard; None: `Given.advised` counts.
_advised: ContextVar[set[str] | None] = ContextVar("advised", default=None)
# Where Kafka is for a client in a program without the command line: bootstrap servers and topic prefix.
_client: ContextVar[tuple[str | None, str]] = ContextVar("client", default=(None, ""))


def begin(program: str, config: str | None) -> None:
    """Notes that a command begins, and the file of --config."""
    _given[:] = [Given(program, config)]


@contextmanager
def _within(variable: ContextVar[_Value], value: _Value) -> Iterator[None]:
    """Gives a variable a value within the block, for this thread only."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def about(program: str) -> AbstractContextManager[None]:
    """Names the program that this thread's sentences concern while the block runs."""
    return _within(_about, program)


def anew() -> AbstractContextManager[None]:
    """Lets the block give each piece of advice once, even if the command has given it before."""
    return _within(_advised, set())


def of_client(servers: str, prefix: str) -> AbstractContextManager[None]:
    """Names a client's Kafka in the sentences of this thread within the block, unless a command runs."""
    return _within(_client, (servers, prefix))


def note(option: str, value: str | None, *, is_needed: bool) -> None:
    """Notes an option of the command that runs.

    Args:
        option: The option.
        value: The option's value; None if it has none.
        is_needed: Whether another command needs the option, because the option's default is another value.
    """
    for given in _given:
        if option == _SERVERS:
            given.servers = value
        if is_needed and value is not None:
            given.options[option] = value


def begin_run(*, has_checkpoints: bool) -> None:
    """Notes that this process and the programs that it starts run under `run`. Notes the --checkpoints of `run`."""
    os.environ[UNDER_RUN_VARIABLE] = "--checkpoints" if has_checkpoints else ""


def forget() -> None:
    """Forgets all notes."""
    _given.clear()


def command(*words: str, servers: str | None = None, prefix: str = "", config: str | None = None) -> str:
    """Returns a command line with the options that say where Kafka is.

    Args:
        words: The command with its arguments and options.
        servers: The bootstrap servers of the cluster that the command is about; None: the servers of the command that
            runs.
        prefix: The topic prefix on that cluster.
        config: The file of --config before the command, if the command that runs was given none.
    """
    for given in _given:
        if servers in (None, given.servers):
            return plain(*words, *place(), config=given.config or config)
    if servers is None:
        servers, prefix = _client.get()
    there = [] if servers is None else [_SERVERS, servers]
    return plain(*words, *there, *(["--topic-prefix", prefix] if prefix else []), config=config)


def place() -> list[str]:
    """Returns the options that say where Kafka is and whose values are not the defaults, with the values."""
    return [word for given in _given for option in given.options.items() for word in option]


def is_new(advice: str) -> bool:
    """Notes advice; returns whether it is new. A command gives each advice once."""
    of_answer = _advised.get()
    for advised in [given.advised for given in _given] if of_answer is None else [of_answer]:
        if advice in advised:
            return False
        advised.add(advice)
    return True


def plain(*words: str, config: str | None = None) -> str:
    """Returns a command line that does not say where Kafka is, such as a command line with --help.

    Args:
        words: The command with its arguments and options.
        config: The file of --config before the command.
    """
    return shlex.join([COMMAND, *([] if config is None else ["--config", config]), *words])


def broker(servers: str) -> str | None:
    """Returns the command line that starts a broker at these servers; None if they are not on this machine."""
    host, _, port = servers.rpartition(":")
    if host not in _LOCAL or not port.isdecimal():
        return None
    return plain("broker", *([] if port == "9092" else ["--port", port]), "--data-dir", "checkpoints/broker")


def is_command() -> bool:
    """Returns whether a command of `queue-activation` runs, and not a program that only uses the clients."""
    return bool(_given)


def option_or_argument(name: str) -> str:
    """Returns an option that says where Kafka is. In a program without a command line, returns the client's argument.

    Args:
        name: The option, such as --bootstrap-servers.
    """
    return name if is_command() else f"`{name.removeprefix('--').replace('-', '_')}`"


def client_properties() -> str:
    """Returns where the user has set properties of Kafka's client."""
    return "the file of --kafka-config" if is_command() else option_or_argument("--kafka-config")


def option(name: str, value: str | None = None, *, names_table: bool = True) -> str:
    """Returns how a user gives an option to this program. Under `run`, the option is a key of the program's table.

    Args:
        name: The option, such as --restore.
        value: The option's value; None if the rest of the sentence says the value.
        names_table: Whether to name the table under `run`; False if the next option of the sentence names the table.
    """
    checkpoints = os.environ.get(UNDER_RUN_VARIABLE)
    if checkpoints is None or name in OPTIONS_OF_RUN:
        return name if value is None else f"`{name} {value}`"
    if name in _PLACES and checkpoints:
        return checkpoints
    key = name.removeprefix("--")
    entry = key if value is None else f'{key} = "{value}"'
    if not names_table:
        return f"`{entry}`"
    program = _about.get() or (_given[0].program if _given else "PROGRAM")
    return f"`{entry}` in the table [{program}] of the file of --config"


def sending_on() -> str:
    """Returns the advice about messages that would have to be sent on to another instance."""
    with about("router"):
        return f"The router sends messages on with {option('--message-forwarding', 'ON')}"
