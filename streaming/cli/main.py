"""The command `queue-activation`: reads options, runs a command, and turns errors into exit codes."""

import errno
import io
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from typer.core import TyperGroup
from typer.exceptions import TyperException

from streaming.cli import (
    activator,
    clients,
    dead_letters,
    groups,
    host,
    maintenance,
    monitor,
    observe,
    option_groups,
    options_file,
    prepare,
    queue,
    router,
    run,
    send,
    topics,
    transport,
)
from streaming.cli.conversations import commands as conversations
from streaming.cli.dashboard import command as dashboard
from streaming.cli.diagnosis import command as diagnosis
from streaming.cli.help_texts import keep_names_whole
from streaming.cli.routing import databases, routes
from streaming.errors import UserError
from streaming.system import hints, logs, stop_signals
from streaming.system.options import option
from streaming.system.wrapped_text import fitted

# Python's reason for an argument with bytes that are not UTF-8. Texts of records have no such bytes.
_NOT_DECODED = "surrogates not allowed"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

keep_names_whole()
app = typer.Typer(
    name="queue-activation",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich's boxes truncate the names of options
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"queue-activation {version('queue-activation')}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="TOML file with options. Keys at the top apply to all commands, a table such as [monitor] to one. "
            "The --config of `activator`, `observe` and `host`, after the command, names another file.",
            envvar="QUEUE_ACTIVATION_OPTIONS",
            dir_okay=False,
        ),
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Start one more queue reader when it would have useful work: SQL Server Service Broker's activation, for Kafka.

    Environment variables can set the options of a command: QUEUE_ACTIVATION_QUIET_WINDOW sets --quiet-window. --json
    and the options that define a queue, a database, a service or a route have no variable. The command line overrides
    the environment, and the environment overrides the file of --config. Give --config before the command:
    queue-activation --config FILE monitor.
    """
    hints.begin(context.invoked_subcommand or "", None if config is None else str(config.absolute()))
    context.call_on_close(hints.forget)
    if config is not None:
        context.default_map = options_file.defaults(cast("TyperGroup", context.command), config)


@app.command()
@stop_signals.orderly("broker")
def broker(
    port: Annotated[int, option("--port", "Port on this machine; 0 picks a free one.", min=0, max=65535)] = 9092,
    data_dir: Annotated[
        Path | None,
        option("--data-dir", "Folder for topics and records. Without it, they are lost when the broker stops."),
    ] = None,
) -> None:
    """Run a real Kafka broker on this machine in the foreground, without Docker.

    Prints `broker ready HOST:PORT`. Ctrl-C or SIGTERM stops it.
    """
    from streaming.system.embedded_broker import run_broker_in_foreground

    raise typer.Exit(run_broker_in_foreground(port, data_dir))


for command in (
    topics.topics,
    monitor.monitor,
    send.send,
    clients.workload,
    clients.watch,
    clients.queues,
    clients.tasks,
    clients.read,
    dead_letters.dead_letters,
    groups.groups,
    observe.observe,
    host.host,
    router.router,
    transport.transport,
    run.run,
    diagnosis.diagnose,
    conversations.transmissions,
    maintenance.maintenance,
    maintenance.connections,
    dashboard.dashboard,
    prepare.prepare,
):
    app.command()(command)
for name, family in {
    "queue": queue.app,
    "activator": activator.app,
    "database": databases.databases,
    "service": databases.services,
    "route": routes.routes,
    "conversation": conversations.conversations,
}.items():
    app.add_typer(family, name=name)


demos = typer.Typer()
app.add_typer(demos, name="demo")


@demos.callback(invoke_without_command=True)
def demo(
    context: typer.Context,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep everything up until Ctrl-C, to look at and to try.")
    ] = False,
) -> None:
    """Run everything on this machine: broker, monitor, senders and real readers.

    Ends by itself, usually within two minutes. Meanwhile the dashboard shows what happens and why, at the
    address that is printed.
    """
    if context.invoked_subcommand is not None:
        return
    from streaming.cli.demo import demo as the_demo

    raise typer.Exit(the_demo.run(Console(highlight=False), keeps=keep))


@demos.command("services")
def demo_services() -> None:
    """Show services: a shop talks to a stock, by name.

    Runs broker, monitor, router, transport and real readers on this machine, and ends by itself, usually within two
    minutes. A route changes while orders flow, messages wait for a service that is not there yet, and a timer sends a
    reminder. Exit code 1 if a message was lost, delivered twice, out of order or to the wrong place, or not answered.
    """
    from streaming.cli.demo import services as the_demo

    raise typer.Exit(the_demo.run(Console(highlight=False)))


@demos.command("instances")
def demo_instances() -> None:
    """Show several instances: orders in one Kafka cluster, the stock in another.

    Runs two brokers, three routers and three transports on this machine, and ends by itself, usually within three
    minutes. The link between the clusters is cut for 20 s while orders flow, a third instance sends messages on past
    it, and a mirror takes over. Exit code 1 if a message was lost, delivered twice or out of order, or not answered.
    """
    from streaming.cli.demo import instances as the_demo

    raise typer.Exit(the_demo.run(Console(highlight=False)))


@demos.command("observe")
def demo_observe() -> None:
    """Show consumers that know only Kafka, started on demand.

    Runs broker, monitor, observer and activator on this machine, and ends by itself, usually within two minutes. The
    consumers use confluent-kafka, kafka-python and Java's client. Beside each activation is the number of readers that
    a lag rule with KEDA's defaults would have wanted. Exit code 1 if a message was not read or a consumer received
    nothing.
    """
    from streaming.cli.demo import observe as the_demo

    raise typer.Exit(the_demo.run(Console(highlight=False)))


def _say_whole_sentences(group: typer.Typer) -> None:
    """Gives each command its first sentence for lists of commands. By default, Click cuts the sentence."""
    for command in group.registered_commands:
        command.short_help = _first_sentence(command.callback.__doc__ if command.callback is not None else None)
    for member in group.registered_groups:
        inner = member.typer_instance
        if inner is not None:
            callback = inner.registered_callback
            described = callback.callback.__doc__ if callback is not None and callback.callback else inner.info.help
            member.short_help = _first_sentence(described)
            _say_whole_sentences(inner)


def _first_sentence(text: str | None) -> str:
    paragraph = " ".join((text or "").strip().partition("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", paragraph, maxsplit=1)[0]


option_groups.expand(app)
_say_whole_sentences(app)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command line, by default this process's own. A user's error becomes one message and exit code 2."""
    logs.warn_on_screens()
    try:
        exit_code = app(arguments, standalone_mode=False)
        sys.stdout.flush()
        sys.exit(exit_code)
    except TyperException as error:
        _name_the_source(error)
        _name_the_command(error)
        click_error = cast("Any", error)  # Typer has no public type for the errors that it raises
        shown = io.StringIO()
        click_error.show(shown)
        typer.echo(fitted(shown.getvalue(), sys.stderr), err=True, nl=False)
        sys.exit(click_error.exit_code)
    except typer.Abort:
        sys.exit(1)
    except UnicodeEncodeError as error:
        if error.reason != _NOT_DECODED:
            raise
        logs.report(f"An argument or a variable is not UTF-8: {error.object!r}")
        sys.exit(2)
    except UserError as error:
        logs.report(str(error))
        sys.exit(2)
    except OSError as error:
        # Writing to an open file gives no name; all other files are opened by name, or their errors are the user's.
        if error.errno not in _FULL or error.filename is not None:
            raise
        _drop_output()
        logs.report(f"The output cannot be written: {error.strerror}. Give it another place.")
        sys.exit(2)


def _drop_output() -> None:
    """Discards the rest of the standard output, because Python would fail again when it exits."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _name_the_command(error: Any) -> None:
    """Completes the error about an unknown option: names the commands that have the option.

    These are `queue-activation` itself, or commands of the same family.

    Args:
        error: The error. Typer has no public type for errors about unknown options.
    """
    context = getattr(error, "ctx", None)
    if not hasattr(error, "possibilities") or context is None or context.parent is None:
        return
    root = context.find_root()
    for parameter in root.command.params:
        if error.option_name in parameter.opts:
            path = context.command_path.removeprefix(root.command_path).split()
            value = [] if parameter.is_flag else [parameter.metavar]
            before = hints.plain(error.option_name, *value, *path)
            error.message = f"{error.message}. `{hints.COMMAND}` itself has it, before the command: `{before}`"
            error.possibilities = None
            return
    if context.parent is root:  # a command by itself
        return
    family = context.parent.command.commands
    having = [
        name for name, command in family.items() if any(error.option_name in each.opts for each in command.params)
    ]
    if having:
        names = " and ".join(f"`{hints.plain(context.parent.info_name, name)}`" for name in having)
        error.message = f"{error.message}. {names} {'has' if len(having) == 1 else 'have'} it"
        error.possibilities = None


def _name_the_source(error: TyperException) -> None:
    """Names the source of an invalid value, unless it is the command line, and tidies the message."""
    if not isinstance(error, typer.BadParameter):
        return
    error.message = error.message.removeprefix("Value error, ")
    context, parameter = error.ctx, error.param
    if context is None or parameter is None or parameter.name is None:
        return
    # If an option takes any case, Typer lists its choices in small letters.
    for each in parameter.type_descriptor.choices or ():
        error.message = error.message.replace(repr(each.value.casefold()), repr(each.value))
    source = context.get_parameter_source(parameter.name)
    if source is not None and source.name == "ENVIRONMENT":
        error.param_hint = f"the environment variable {parameter.envvar}"
    elif source is not None and source.name == "DEFAULT_MAP":
        error.param_hint = f"{parameter.opts[0].removeprefix('--')} in the file of --config"
