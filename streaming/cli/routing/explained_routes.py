"""The explanations of routing decisions, for `route explain`, `route check`, `diagnose` and the dashboard."""

import codecs
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from streaming.cli.routing.service_commands import fold, read_commands
from streaming.core.numbers import plural
from streaming.core.routing.addresses import normal_form
from streaming.core.routing.conversation import Decision, Instance
from streaming.core.routing.definitions import Definitions
from streaming.core.routing.explanation import Explanation
from streaming.core.routing.resolution import FORWARDING_OFF, resolve
from streaming.errors import UserError
from streaming.kafka.clients import Cluster
from streaming.system import hints, wall_clock
from streaming.system.logs import printable
from streaming.wire.record_decoders import Decoder, InvalidRecordError, decode_json
from streaming.wire.service_definitions import (
    Case,
    ConversationRow,
    DefinitionsFile,
    cases_decoder,
    definitions_decoder,
)
from streaming.wire.topics import Topics

T = TypeVar("T")

# The title of the result of an explanation.
RESULT = "=>"


@dataclass(frozen=True)
class Origin:
    """The definitions to explain, and the instance that they belong to.

    Attributes:
        load: Returns new definitions, on which `Definitions.advance` has not been called.
        instance: The instance.
    """

    load: Callable[[], Definitions]
    instance: Instance


@dataclass(frozen=True)
class Result:
    """A decision about a case, and its explanation."""

    case: Case
    decision: Decision
    explanation: Explanation

    def values(self) -> dict[str, Any]:
        """Returns the decision in plain values."""
        decision = self.decision
        service = decision.service
        return {
            "outcome": decision.outcome.value,
            "rule": decision.rule,
            "route": decision.route,
            "database": service.database if service is not None else None,
            "service": service.name if service is not None else None,
            "queue": service.queue if service is not None else None,
            "address": decision.address,
            "mirror_address": decision.mirror_address,
            "number": decision.number,
        }

    def as_json(self) -> str:
        """Returns the decision and its explanation as one line of JSON."""
        steps = [
            {"step": step.title, "result": step.text, "passed_over": step.passed_over, "others": step.others}
            for step in self.explanation.steps
        ]
        return json.dumps({"name": self.case.name, **self.values(), "steps": steps})

    def as_text(self) -> str:
        """Returns the decision and its explanation as lines for people."""
        lines = [self.heading()]
        for title, each in self.fields():
            lines.append(f"  => {each[0]}" if title == RESULT else f"  {title:<7} {each[0]}")
            lines += [f"          {line}" for line in each[1:]]
        return "\n".join(map(printable, lines))

    def heading(self) -> str:
        """Returns the line about the message that was routed."""
        asked = self.case.conversation
        sender = "from another instance" if asked.incoming else f"from database {asked.from_database}"
        names = f" at broker instance {asked.to_broker_instance}" if asked.to_broker_instance else ""
        reply = "" if asked.is_initiator else ", sent by the target"
        return f"{self.case.name}: a message {sender} to service {asked.to_service}{names}{reply}"

    def fields(self) -> Iterator[tuple[str, list[str]]]:
        """Yields the title and the lines of each step, and then of the result."""
        for step in self.explanation.steps:
            lines = [step.text, *(f"  {name}: {why}" for name, why in step.passed_over.items())]
            yield step.title, [*lines, *([f"  and {plural(step.others, 'more route')}"] if step.others else [])]
        yield RESULT, [self._summary(), *([hints.sending_on()] if self.decision.number == FORWARDING_OFF else [])]

    def _summary(self) -> str:
        decision = self.decision
        if decision.service is not None:
            found = decision.service
            return f"{decision.outcome.value}: queue {found.queue} of service {found.name} in database {found.database}"
        if decision.address is not None:
            mirror = f", mirror {decision.mirror_address}" if decision.mirror_address else ""
            return f"{decision.outcome.value}: {decision.address}{mirror}"
        return f"{decision.outcome.value} ({decision.number})"


def source(
    definitions: Path | DefinitionsFile | None,
    kafka: Callable[[], Cluster],
    topics: Topics,
    addresses: list[str],
    is_forwarding: bool,
) -> Origin:
    """Returns the definitions of a file, or the definitions in Kafka.

    Raises:
        UserError: The file cannot be read or is invalid, an address is invalid, or Kafka cannot be reached.
    """
    if isinstance(definitions, Path):
        definitions = read_json(definitions, definitions_decoder)
    try:
        if definitions is not None:
            definitions.definitions()
            return Origin(definitions.definitions, definitions.instance.instance())
    except InvalidRecordError as error:
        raise UserError(f"The definitions are invalid: {error}") from None
    cluster, instance = kafka(), instance_of(addresses, is_forwarding)
    commands = read_commands(cluster, topics)
    return Origin(lambda: fold(commands), instance)


def instance_of(addresses: list[str], is_forwarding: bool) -> Instance:
    """Returns the instance that the options describe.

    Raises:
        UserError: An address is invalid.
    """
    invalid = [address for address in addresses if normal_form(address) is None]
    if invalid:
        raise UserError(
            f"{hints.option('--instance-address')} {invalid[0]}: write tcp://HOST:PORT, or tcp://HOST:PORT/PREFIX."
        )
    return Instance(frozenset(found for address in addresses if (found := normal_form(address))), is_forwarding)


def one_case(
    conversation_id: str,
    to_service: str,
    broker_instance: str | None,
    is_initiator: bool,
    from_database: str | None,
    at: str | None,
) -> Case:
    """Returns the case that the options of `route explain` describe."""
    conversation = ConversationRow(
        conversation_id, to_service, broker_instance, is_initiator, from_database, from_database is None
    )
    return Case(conversation_id, conversation, at)


def read_cases(path: Path) -> list[Case]:
    """Reads a file of cases; raises UserError."""
    return read_json(path, cases_decoder)


def read_json(path: Path, decoder: Decoder[T]) -> T:
    """Reads a JSON file; raises UserError."""
    try:
        # Editors on Windows write a byte order mark, which JSON does not know.
        return decode_json(decoder, path.read_bytes().removeprefix(codecs.BOM_UTF8))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except InvalidRecordError as error:
        raise UserError(f"{path}: {error}") from None


def results(source_of: Origin, cases: list[Case]) -> Iterator[Result]:
    """Yields the decision about each case, in the order of the cases.

    Raises:
        UserError: A case is invalid.
    """
    present_ms = wall_clock.now_ms()
    loaded: dict[int, Definitions] = {}
    for case in cases:
        try:
            at_ms, conversation = case.at_ms(present_ms), case.conversation.conversation()
        except InvalidRecordError as error:
            raise UserError(f"Case {case.name!r}: {error}") from None
        if at_ms not in loaded:
            loaded[at_ms] = source_of.load()
            loaded[at_ms].advance(at_ms)
        explanation = Explanation()
        decision = resolve(loaded[at_ms], source_of.instance, conversation, explanation=explanation)
        yield Result(case, decision, explanation)
