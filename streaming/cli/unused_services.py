"""Says that no services are used, if the topics of services do not exist: with only queues and consumer groups."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from streaming.cli.lines import say
from streaming.errors import UserError
from streaming.kafka.access import rights
from streaming.kafka.admin import Admin, TopicsMissingError
from streaming.system import hints

_Command = TypeVar("_Command", bound=Callable[..., Any])


def shows_services(nothing: str = "") -> Callable[[_Command], _Command]:
    """Returns a decorator for a command: instead of failing without the topics of services, it says that none are used.

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
                    raise UserError(unused(error.cluster.bootstrap_servers, topics.prefix)) from None
                if not values.get("as_json"):
                    say(f"{nothing}. {unused(error.cluster.bootstrap_servers, topics.prefix)}")

        return run  # type: ignore[return-value]

    return decorated


def unused(servers: str, prefix: str) -> str:
    """Returns the sentences for the place where services would be shown."""
    create = hints.command("topics", servers=servers, prefix=prefix)
    return f"Services are not used here: the topics that they need do not exist. `{create}` creates them."
