"""The settings of a router."""

from dataclasses import dataclass
from typing import Annotated

from streaming.core.activation.settings import Semantics
from streaming.core.routing.conversation import Instance
from streaming.daemons.query.options import CheckpointLocation, QueryOptions, QuerySettings
from streaming.system import durations
from streaming.system.durations import Duration
from streaming.system.options import duration, option


@dataclass(frozen=True)
class RouterOptions(QueryOptions):
    """The options that only `queue-activation router` has."""

    checkpoint_location: CheckpointLocation = "checkpoints/router"
    restore: Annotated[
        str | None,
        option(
            "--restore",
            "Begin a new checkpoint although routers have worked before: the location of an older copy of the lost "
            "checkpoint, or `none`. Conversations that may have gone on since the copy end with an Error.",
            metavar="COPY",
        ),
    ] = None
    semantics: Annotated[
        Semantics,
        option(
            "--semantics",
            "While a route is asked for: `observed` holds all conversations with its service, `literal` only the one "
            "that asked. The others then go by a route for any service.",
        ),
    ] = Semantics.OBSERVED
    keep: Annotated[
        Duration,
        duration("--keep", "Records of service-messages that no conversation needs are deleted after this long."),
    ] = durations.parse("24h")


@dataclass(frozen=True)
class RouterSettings(QuerySettings):
    """The settings of `queue-activation router`.

    Attributes:
        options: The options that only the router has.
        instance: This instance.
    """

    options: RouterOptions
    instance: Instance
