"""The command `queue alter` without Kafka: what it refuses."""

import json

import pytest

from streaming.cli import definition_warnings, queue, queue_facts, queue_losses
from streaming.core.activation.definition import ActivationClause, QueueDefinition
from tests.support.shell import run_command

AUTOMATIC = QueueDefinition.automatic(True)
PARTITIONS = 2
WITHOUT_PROCEDURE = QueueDefinition(activation=ActivationClause())
NO_PROCEDURE = (
    "warning: the internal activation of queue orders names no procedure, so only an entry with the name `*` in a "
    "host's file runs its tasks. Name one: `queue-activation queue alter orders --procedure NAME`"
)
WITH_ACTIVATION = QueueDefinition(activation=ActivationClause(procedure_name="read"))


def alter(monkeypatch: pytest.MonkeyPatch, definition: QueueDefinition | None, *words: str, code: int = 0) -> str:
    sent: list[str] = []
    monkeypatch.setattr(queue_facts, "is_known", lambda *_: True)
    monkeypatch.setattr(queue_facts, "definition_of", lambda *_: definition)
    monkeypatch.setattr(queue, "_send", lambda _kafka, _topics, commands: sent.extend(map(str, commands)))
    monkeypatch.setattr(queue, "_when", lambda *_: "")
    monkeypatch.setattr(queue_facts, "partitions_of", lambda *_: PARTITIONS)
    said = run_command("queue", "alter", "orders", *words, code=code)
    return json.dumps(sent) if code == 0 else said


@pytest.mark.parametrize("definition", [AUTOMATIC, None])
@pytest.mark.parametrize("option", ["--max-queue-readers=3", "--execute-as=me"])
def test_a_part_of_internal_activation_does_not_switch_it_on(
    monkeypatch: pytest.MonkeyPatch, definition: QueueDefinition | None, option: str
) -> None:
    said = alter(monkeypatch, definition, option, code=2)
    assert "has no internal activation" in said
    assert "--procedure NAME" in said
    for more in ("--procedure=read", "--activation=ON", "--activation=OFF"):
        assert "AlterQueue" in alter(monkeypatch, definition, option, more)


@pytest.mark.parametrize("option", ["--max-queue-readers=3", "--execute-as=me", "--activation=DROP", "--status=OFF"])
def test_a_part_of_internal_activation_that_is_there_is_changed(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    assert "AlterQueue" in alter(monkeypatch, WITH_ACTIVATION, option)


@pytest.mark.parametrize(("readers", "is_warned"), [(1, False), (PARTITIONS, False), (PARTITIONS + 1, True)])
def test_readers_without_a_partition_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, readers: int, is_warned: bool
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(definition_warnings, "say", lambda line, **_: lines.append(line))
    alter(monkeypatch, WITH_ACTIVATION, f"--max-queue-readers={readers}")
    warned = f"warning: topic orders has {PARTITIONS} partitions, so of {readers} readers no more than {PARTITIONS}"
    assert any(line.startswith(warned) for line in lines) is is_warned


def test_a_queue_without_readers_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(definition_warnings, "say", lambda line, **_: lines.append(line))
    alter(monkeypatch, WITH_ACTIVATION, "--max-queue-readers=0")
    assert "warning: no task is ever started for queue orders with --max-queue-readers 0" in lines


@pytest.mark.parametrize(
    ("definition", "words", "is_warned"),
    [
        (None, ["--activation=ON"], True),
        (AUTOMATIC, ["--activation=ON", "--max-queue-readers=2"], True),
        (AUTOMATIC, ["--activation=OFF"], False),
        (AUTOMATIC, ["--procedure=read"], False),
        (WITH_ACTIVATION, ["--activation=ON"], False),
        (WITHOUT_PROCEDURE, ["--max-queue-readers=2"], True),
        (WITHOUT_PROCEDURE, ["--procedure=read"], False),
        (WITHOUT_PROCEDURE, ["--activation=DROP"], False),
        (WITHOUT_PROCEDURE, ["--status=OFF"], False),
    ],
)
def test_internal_activation_without_a_procedure_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, definition: QueueDefinition | None, words: list[str], is_warned: bool
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(definition_warnings, "say", lambda line, **_: lines.append(line))
    alter(monkeypatch, definition, *words)
    assert [line for line in lines if "procedure" in line] == [NO_PROCEDURE] * is_warned


@pytest.mark.parametrize(
    ("words", "is_warned"), [(["--max-queue-readers=2"], True), (["--procedure=read"], False), ([], False)]
)
def test_so_it_is_when_a_queue_is_created(monkeypatch: pytest.MonkeyPatch, words: list[str], is_warned: bool) -> None:
    lines: list[str] = []
    monkeypatch.setattr(definition_warnings, "say", lambda line, **_: lines.append(line))
    monkeypatch.setattr(queue_facts, "definition_of", lambda *_: None)
    monkeypatch.setattr(queue_facts, "partitions_of", lambda *_: PARTITIONS)
    monkeypatch.setattr(queue_losses, "warn_of_uncounted", lambda *_: None)
    monkeypatch.setattr(queue, "_send", lambda *_: None)
    monkeypatch.setattr(queue, "_when", lambda *_: "")
    run_command("queue", "create", "orders", "--only=definition", *words)
    assert lines == [NO_PROCEDURE] * is_warned


@pytest.mark.parametrize("name", ["none", "NONE"])
def test_no_notification_is_called_none_by_mistake(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    said = alter(monkeypatch, AUTOMATIC, "--notification", name, code=2)
    assert "To drop one: `queue-activation queue alter orders --drop-notification NAME`" in said
    assert "none" in alter(monkeypatch, AUTOMATIC, "--notification", "none=Audit")
    assert "none" in alter(monkeypatch, AUTOMATIC, "--drop-notification", "none")
