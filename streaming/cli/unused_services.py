"""Says that no services are used, if the topics of services do not exist, for example after `run FILE`."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from streaming.cli.lines import say
from streaming.errors import UserError
from streaming.kafka.access import rights
from streaming.kafka.admin import Admin, TopicsMissingError
from streaming.kafka.clients import Cluster
from streaming.system import hints
from streaming.wire.topics import Topics

_UNUSED = "Services are not used here."
_Command = TypeVar("_Command", bound=Callable[..., Any])


def shows_services(nothing: str = "") -> Callable[[_Command], _Command]:
    """Returns a decorator for a command. Without the topics of services, the command says that no services are used.

    Args:
        nothing: The words of the command for an empty view. If empty, the command fails, because its user has named
            a thing that does not exist.
    """

    def decorated(command: _Command) -> _Command:
        @wraps(command)
        def run(**values: Any) -> None:
            try:
                command(**values)
            except TopicsMissingError as error:
                topics = values["place"].topics()
                of_services = {spec.name for spec in topics.service_specs()}
                if not of_services.issuperset(error.topics):
                    raise
                if topics.monitors not in Admin(error.cluster).find_topics(rights(reads=[topics.monitors])):
                    raise
                if not nothing:
                    raise UserError(f"{_UNUSED} {no_topics(error.cluster, topics)}") from None
                if not values.get("as_json"):
                    say(f"{nothing}. {_UNUSED} {no_topics(error.cluster, topics)}")

        return run  # type: ignore[return-value]

    return decorated


def no_topics(kafka: Cluster, topics: Topics) -> str:
    """Returns the sentences about the topics of services, if they do not exist."""
    create = hints.command("topics", servers=kafka.bootstrap_servers, prefix=topics.prefix)
    return f"The topics that they need do not exist. `{create}` creates them."
