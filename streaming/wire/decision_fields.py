"""The decisions of the router, as fields of the records of service-decisions and service-reports.

They are derived from the classes of core/conversations/decisions.py, which explains them. A field with its default is
left out of a record.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from functools import reduce
from operator import attrgetter, or_
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_args

from msgspec import Meta, Struct, defstruct

from streaming.core.conversations.decisions import Decision, Deliver
from streaming.wire.decoding import Int64, record_type

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
_RENAMED = {"group_id": "conversation_group_id"}


def _field(of: Field[Any]) -> tuple[str, Any] | tuple[str, Any, Any]:
    """Returns a field of a decision as msgspec defines one."""
    its_type = _TYPES_BY_NAME.get(of.name) or _TYPES.get(of.type, of.type)
    return (of.name, its_type) if of.default is MISSING else (of.name, its_type, of.default)


def _record(decision: type[Decision]) -> type[Struct]:
    """Returns the class of a decision's record. Its fields have the order of the decision's."""
    return defstruct(
        f"{decision.__name__}Fields",
        [_field(each) for each in fields(decision)],
        tag_field="decision",
        tag=record_type(decision.__name__),
        rename=_RENAMED,
        omit_defaults=True,
    )


# The class of a decision, or of its record -> the other class, and the values of a decision or record in its order.
_OTHERS: dict[type, tuple[type, Callable[[Any], tuple[Any, ...]]]] = {}
for _decision in get_args(Decision):
    _its_record = _record(_decision)
    _values_of = attrgetter(*_its_record.__struct_fields__)
    _OTHERS[_decision], _OTHERS[_its_record] = (_its_record, _values_of), (_decision, _values_of)

if TYPE_CHECKING:
    # mypy knows no classes that are made while the program runs.
    DeliverFields: TypeAlias = Struct
    DecisionFields: TypeAlias = Struct
else:
    DeliverFields = _OTHERS[Deliver][0]
    DecisionFields = reduce(or_, (_OTHERS[each][0] for each in get_args(Decision)))


def fields_of(decision: Decision) -> Struct:
    """Returns a decision as the fields of its record."""
    found: Struct = _other(decision)
    return found


def decision_of(record: Struct) -> Decision:
    """Returns the decision of a record's fields."""
    found: Decision = _other(record)
    return found


def _other(one: Decision | Struct) -> Any:
    other, values_of = _OTHERS[type(one)]
    return other(*values_of(one))
