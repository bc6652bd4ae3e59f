"""The decisions of the router, as fields of the records of service-decisions and service-reports.

The fields are derived from the classes of core/conversations/decisions.py, which explains them. A field with its
default is left out of a record.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

from msgspec import Meta, Struct, defstruct

from streaming.core.conversations.decisions import Decision, Deliver, Transmit
from streaming.core.conversations.kinds import Kind
from streaming.wire.record_decoders import Int64, record_type

Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
# No report may make a decision that is too large for Kafka.
_Text = Annotated[str, Meta(max_length=4000)]

_TYPES: dict[object, Any] = {int: Natural, int | None: Natural | None}
_TYPES_BY_NAME: dict[str, Any] = {
    "number": Int64 | None,
    "error_code": Int64 | None,
    "error_text": _Text | None,
    "body": _Text | None,
}
# The kinds of messages that are put into a queue, and that are sent to another instance.
_KINDS: dict[type[Decision], Any] = {
    Deliver: Literal["END", "ERROR", "MESSAGE", "TIMER"],
    Transmit: Literal["ACK", "END", "ERROR", "MESSAGE"],
}
_RENAMED = {"group_id": "conversation_group_id"}


def _field(decision: type[Decision], of: Field[Any]) -> tuple[str, Any] | tuple[str, Any, Any]:
    """Returns a field of a decision in the form that `defstruct` takes."""
    its_type = _TYPES_BY_NAME.get(of.name) or _TYPES.get(of.type, of.type)
    its_type = _KINDS[decision] if its_type is Kind else its_type
    return (of.name, its_type) if of.default is MISSING else (of.name, its_type, of.default)


def _record(decision: type[Decision]) -> type[Struct]:
    """Returns the class of a decision's record. Its fields have the order of the decision's fields."""
    return defstruct(
        f"{decision.__name__}Fields",
        [_field(decision, each) for each in fields(decision)],
        tag_field="decision",
        tag=record_type(decision.__name__),
        rename=_RENAMED,
        omit_defaults=True,
    )


def _maker(made: type, names: tuple[str, ...], value: str = "one.{}") -> Callable[[Any], Any]:
    """Returns a function that makes an object from the attributes of another object, as fast as if written by hand.

    Args:
        made: The class of the object.
        names: The names of the attributes.
        value: The expression for the attribute `kind`, in which `{}` stands for the attribute's name.
    """
    values = ", ".join((value if name == "kind" else "one.{}").format(name) for name in names)
    known = {"made": made, "kinds": Kind.__members__}
    function: Callable[[Any], Any] = eval(f"lambda one: made({values})", known)  # noqa: S307  (our own names)
    return function


_RECORDS: dict[type[Decision], type[Struct]] = {each: _record(each) for each in get_args(Decision)}
_to_record: dict[type, Callable[[Decision], Struct]] = {}
_to_decision: dict[type, Callable[[Struct], Decision]] = {}
for _decision, _its_record in _RECORDS.items():
    _to_record[_decision] = _maker(_its_record, _its_record.__struct_fields__)
    _to_decision[_its_record] = _maker(_decision, _its_record.__struct_fields__, "kinds[one.{}]")

if TYPE_CHECKING:
    # mypy knows no classes that are made while the program runs.
    DeliverFields: TypeAlias = Struct
    DecisionFields: TypeAlias = Struct
else:
    DeliverFields = _RECORDS[Deliver]
    DecisionFields = reduce(or_, _RECORDS.values())


def fields_of(decision: Decision) -> Struct:
    """Returns a decision as the fields of its record."""
    return _to_record[type(decision)](decision)


def decision_of(record: Struct) -> Decision:
    """Returns the decision of a record's fields."""
    return _to_decision[type(record)](record)
