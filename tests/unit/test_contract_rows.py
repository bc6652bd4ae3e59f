"""All of docs/contract.md is compared with the code: each record of the code, and each row of the document."""

import importlib
import pkgutil
from collections.abc import Callable
from typing import get_args

import msgspec

from streaming import wire
from streaming.wire import input_records
from streaming.wire.activator_rows import ActivatorRow, DecisionRow, ExitRow, HeldRow, ProgramRow
from streaming.wire.decision_fields import DecisionFields
from streaming.wire.envelope import Envelope
from streaming.wire.notifications import Activation
from tests.support.documented_contract import DOCUMENT
from tests.unit import (
    test_contract,
    test_contract_commands,
    test_contract_router,
    test_contract_services,
    test_contract_transport,
)

CHECKS = [
    *test_contract.CHECKS,
    *test_contract_commands.CHECKS,
    *test_contract_services.CHECKS,
    *test_contract_transport.CHECKS,
    *test_contract_router.CHECKS,
]


def test_every_record_is_in_the_document() -> None:
    modules = [importlib.import_module(f"{wire.__name__}.{each.name}") for each in pkgutil.iter_modules(wire.__path__)]
    structs = {
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, msgspec.Struct) and each.__module__ == module.__name__
        if not each.__name__.startswith("_")  # what records have in common
    }
    structs.update(get_args(DecisionFields))  # which are derived
    read = {struct for found in test_contract.READ.values() for struct in found}
    of_queues = {*read, *test_contract.WRITTEN.values(), Activation, input_records.ActivationFields}
    of_services = {*test_contract_services.COMMANDS.values(), *test_contract_services.FILES.values(), Envelope}
    of_activators = {ActivatorRow, DecisionRow, ExitRow, HeldRow, ProgramRow}
    of_queues |= of_activators
    assert structs == of_queues | of_services | test_contract_transport.STRUCTS | test_contract_router.STRUCTS


def is_noticed(document: str, checks: list[Callable[[str], None]]) -> bool:
    """Returns whether a check fails. That check comes first from then on, because it also fails for the next rows."""
    for check in checks:
        try:
            check(document)
        except (AssertionError, KeyError, ValueError, IndexError):
            checks.remove(check)
            checks.insert(0, check)
            return True
    return False


def test_a_missing_or_repeated_row_would_be_noticed() -> None:
    checks = CHECKS.copy()
    lines = DOCUMENT.splitlines(keepends=True)
    headings = {at - 1 for at, line in enumerate(lines) if line.startswith("|---")}
    rows = {at for at, line in enumerate(lines) if line.startswith("| ")} - headings
    assert len(rows) > 350
    for at in sorted(rows):
        assert is_noticed("".join(lines[:at] + lines[at + 1 :]), checks), lines[at]
        assert is_noticed("".join(lines[: at + 1] + lines[at:]), checks), lines[at]
