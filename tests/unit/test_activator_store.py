"""The activator's state on disk, and the view of it that `activator status` shows."""

import json
import os
import socket
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from streaming.core.activation.held_notifications import Held
from streaming.core.activation.program_starts import QueueActivator
from streaming.core.activation.running_programs import Ended, Program
from streaming.core.activation.start_decisions import Notified, Seen
from streaming.daemons.activator import status as statuses
from streaming.daemons.activator import store as stores
from streaming.daemons.activator.config import ProgramEntry
from streaming.daemons.activator.settings import ActivatorEvent
from streaming.daemons.activator.status import read_status, show
from streaming.daemons.activator.store import (
    MAX_DECISIONS,
    ProgramRecord,
    QueueRecord,
    Store,
    lock_state,
)
from streaming.errors import UserError
from streaming.system.process_identity import Identity, identity_of

NOW_MS = 1_763_730_000_000


def state() -> QueueActivator:
    held = Held("id-2", 2, "MESSAGES_ACCUMULATING", 5, NOW_MS, blocked="1 of max 1 are running", post_time="then")
    running = {"s": Program(NOW_MS, "id-1", 1, 5, "before")}
    seen = [Seen("id-1", 1, "before"), Seen("id-2", 2, "then")]
    return QueueActivator(running, held, seen, entry='{"queue":"orders","max":1}')


def filled(folder: Path) -> None:
    with Store(folder) as store:
        about = store.about()
        about.pid, about.since_ms, about.config_file = 42, NOW_MS, "/etc/activator.toml"
        about.config_error = "/etc/activator.toml: [[programs]] number 1: `max` must be at least 1, and at most 32767"
        with store.transaction():
            store.save_about(about)
            store.save_queue("orders", QueueRecord(state(), NOW_MS, "held", "#2: 1 of max 1 are running"))
            crashing = QueueActivator(crashes=3, backoff_until_ms=NOW_MS + 9_000, entry='{"queue":"invoices*","max":4}')
            store.save_queue("invoices.eu", QueueRecord(crashing, NOW_MS, "exited", "exit code 3: crash 3 in a row"))
            fatal = QueueActivator(held=state().held, fatal_exit_code=78, entry='{"queue":"f","max":1}')
            store.save_queue("f", QueueRecord(fatal, NOW_MS, "exited", "x"))
            store.save_queue("new", QueueRecord(QueueActivator()))
            store.add_program(ProgramRecord("s", "orders", Identity(7, 8, "boot")))
            store.add_decision(ActivatorEvent(NOW_MS, "orders", "held", "#2: 1 of max 1 are running"))


def test_what_was_saved_is_there_again(tmp_path: Path) -> None:
    filled(tmp_path)
    with Store(tmp_path) as store:
        assert store.about().pid == 42
        assert store.queues()["orders"] == QueueRecord(state(), NOW_MS, "held", "#2: 1 of max 1 are running")
        assert store.programs() == [ProgramRecord("s", "orders", Identity(7, 8, "boot"))]
        with store.transaction():
            store.end_program("s", "orders")
            store.forget_queue("orders")
        assert store.programs() == []
        assert store.ended_sessions() == [("s", "orders")]
        assert "orders" not in store.queues()
        with store.transaction():
            store.forget_session("s")
        assert store.ended_sessions() == []


def test_the_state_of_an_older_version_opens(tmp_path: Path) -> None:
    filled(tmp_path)
    older = {
        "running": {"id-1": {"started_ms": 1, "notification_id": "id-1", "sequence": 1, "unread": 5}},
        "held": {
            "notification_id": "id-2", "sequence": 2, "reason": "", "unread": 5, "settled_ms": 1, "is_fresh": False,
            "is_restart": False, "blocked": "1 of max 1 are running",
        },
        "seen_ids": ["id-1", "id-2"], "crashes": 1, "backoff_until_ms": 1, "fatal_exit_code": None, "min_from_ms": 1,
        "entry": "{}",
    }  # fmt: skip
    with closing(sqlite3.connect(tmp_path / "activator.db")) as connection:
        connection.execute("UPDATE queues SET state = ? WHERE queue = 'orders'", (json.dumps(older),))
        connection.execute("UPDATE about SET value = ?", (json.dumps({"instance_id": "id", "pid": 42}),))
        connection.execute("PRAGMA user_version = 1")
        connection.commit()
    with Store(tmp_path) as store:
        opened = store.queues()["orders"].state
        about = store.about()
        assert (about.instance_id, about.pid, len(about.salt)) == ("id", 42, 64)
    with Store(tmp_path) as store:
        assert store.about() == about
    for new in (Notified("id-1", 1, "then", "", 5), Notified("id-3", 2, "then", "", 5)):
        opened.notified(new, None, NOW_MS)
    assert list(opened.running) == ["id-1"]
    assert opened.held is not None
    assert opened.held.notification_id == "id-3"


def test_each_state_has_an_instance_id_and_a_salt_of_its_own(tmp_path: Path) -> None:
    found = []
    for name in ("a", "b", "a"):
        (tmp_path / name).mkdir(exist_ok=True)
        with Store(tmp_path / name) as store:
            found.append(store.about())
    assert found[0] == found[2]
    assert found[0].instance_id != found[1].instance_id
    assert len(found[0].salt) == len(found[1].salt) == 64
    assert found[0].salt != found[1].salt


def modes(folder: Path) -> dict[str, str]:
    return {path.name: oct(path.stat().st_mode & 0o777) for path in (folder, *folder.iterdir())}


PRIVATE = {
    "state": "0o700", "lock": "0o600",
    "activator.db": "0o600", "activator.db-wal": "0o600", "activator.db-shm": "0o600",
}  # fmt: skip


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_nobody_else_may_read_the_state_or_hold_its_lock(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        lock, store = lock_state(tmp_path / "state"), Store(tmp_path / "state")
    finally:
        os.umask(before)
    with closing(lock), store:
        assert modes(tmp_path / "state") == PRIVATE


def test_the_state_of_an_older_version_becomes_private(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    filled(folder)
    # Left by an activator that was killed.
    for name in ("lock", "activator.db-wal", "activator.db-shm"):
        (folder / name).touch()
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)
    with closing(lock_state(folder)), Store(folder) as store:
        assert modes(folder) == PRIVATE
        assert store.about().pid == 42


def test_a_state_directory_of_another_user_keeps_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: -1)
    lock_state(tmp_path / "state").close()
    assert modes(tmp_path / "state")["state"] == "0o755"


def test_a_state_without_the_right_to_read_it_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    filled(folder)
    user = os.geteuid()
    folder.chmod(0)
    # The superuser may read any folder, so another user tries.
    os.seteuid(user or 65534)
    try:
        with pytest.raises(UserError, match="state cannot be read: Permission denied"):
            read_status(folder, NOW_MS)
    finally:
        os.seteuid(user)
        folder.chmod(0o700)


def test_a_transaction_that_fails_has_changed_nothing(tmp_path: Path) -> None:
    with Store(tmp_path) as store:

        def fail() -> None:
            with store.transaction():
                store.save_queue("q", QueueRecord(state()))
                raise LookupError

        with pytest.raises(LookupError):
            fail()
        assert store.queues() == {}


def test_only_the_latest_decisions_are_kept(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        with store.transaction():
            for number in range(MAX_DECISIONS + 5):
                store.add_decision(ActivatorEvent(number, "q", "held", "why"))
        kept = store.decisions(MAX_DECISIONS + 5)
        assert [kept[0].at_ms, kept[-1].at_ms, len(kept)] == [5, MAX_DECISIONS + 4, MAX_DECISIONS]
        assert [decision.at_ms for decision in store.decisions(2)] == [MAX_DECISIONS + 3, MAX_DECISIONS + 4]


def test_a_newer_versions_state_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(stores, "_FORMAT_VERSION", 3)
        Store(tmp_path).__exit__(None, None, None)
    with pytest.raises(UserError, match="was written by a newer version"):
        Store(tmp_path)


def test_a_damaged_state_is_told(tmp_path: Path) -> None:
    (tmp_path / "activator.db").write_text("no database at all, but long enough to be read as one " * 50)
    with pytest.raises(UserError, match=r"activator\.db cannot be used: file is not a database"):
        Store(tmp_path)


def test_a_state_directory_has_one_activator(tmp_path: Path) -> None:
    assert not stores.is_locked(tmp_path)
    lock = lock_state(tmp_path / "state")
    assert stores.is_locked(tmp_path / "state")
    in_use = rf"Another activator \(process {os.getpid()}\) uses the state directory {tmp_path}/state\. Stop it"
    with pytest.raises(UserError, match=in_use):
        lock_state(tmp_path / "state")
    with pytest.raises(UserError, match=in_use):
        stores.await_free(tmp_path / "state", 0.0)
    lock.close()
    stores.await_free(tmp_path / "state", 0.0)
    assert not stores.is_locked(tmp_path / "state")
    lock_state(tmp_path / "state").close()


@pytest.mark.parametrize(
    "text",
    [b"", b"no process", msgspec.json.encode(Identity(os.getpid(), 1, "another boot"))],
    ids=["empty", "text", "another boot"],
)
def test_only_a_process_that_runs_here_is_named_as_the_other_activator(text: bytes, tmp_path: Path) -> None:
    with lock_state(tmp_path):
        (tmp_path / "lock").write_bytes(text)
        with pytest.raises(UserError, match="Another activator uses the state directory"):
            lock_state(tmp_path)


def test_the_process_in_the_lock_is_that_of_the_last_activator(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(msgspec.json.encode(Identity(1, 1, "another boot")) * 9)
    with lock_state(tmp_path), pytest.raises(UserError, match=rf"\(process {os.getpid()}\)"):
        lock_state(tmp_path)


def test_a_state_directory_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be used"):
        lock_state(tmp_path / "file" / "state")
    with pytest.raises(UserError, match="cannot be used"):
        stores.await_free(tmp_path / "file" / "state", 0.0)


def test_status_before_the_first_notification(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"No activator has run .* start one: `queue-activation run FILE`"):
        read_status(tmp_path, NOW_MS)
    with Store(tmp_path):
        pass
    assert "no notification has come yet" in shown(tmp_path)


def shown(folder: Path, now_ms: int = NOW_MS) -> str:
    console = Console(width=80, no_color=True)
    with console.capture() as capture:
        console.print(show(read_status(folder, now_ms), now_ms, "Start it again: `queue-activation run FILE`"))
    return capture.get()


def test_status_names_the_queues_without_an_entry(tmp_path: Path) -> None:
    filled(tmp_path)
    assert "without an entry" not in shown(tmp_path)
    with Store(tmp_path) as store:
        about = store.about()
        about.without_entry = ["lost-1", "lost-2"]
        store.save_about(about)
    assert read_status(tmp_path, NOW_MS)["without_entry"] == ["lost-1", "lost-2"]
    assert "notified, but without an entry in the config: lost-1, lost-2" in shown(tmp_path)


def test_status_tells_what_runs_what_is_held_and_why(tmp_path: Path) -> None:
    filled(tmp_path)
    status = read_status(tmp_path, NOW_MS)
    orders = next(row for row in status["queues"] if row["queue"] == "orders")
    assert (orders["running"], orders["max"], orders["pids"]) == (1, 1, [7])
    assert orders["held"] == {"notification_id": "id-2", "sequence": 2, "why": "1 of max 1 are running"}
    assert not status["is_running"]
    assert status["decisions"][0]["what"] == "held"


def test_status_fits_80_columns(tmp_path: Path) -> None:
    filled(tmp_path)
    text = shown(tmp_path)
    assert max(map(len, text.splitlines())) <= 80
    for expected in (
        "not running",
        "[[programs]] number 1: `max`",
        "1 program that it has started may still run on its machine, which is unknown here",
        "orders (process 7). `kill PID` on its machine ends it, and the next start finds it",
        "Start it again: `queue-activation run FILE`",
        "1/1",
        "was held: #2: 1 of max 1 are",
        "there had been 3 crashes in a row",
        "any more after the fatal exit code 78",
        " ran ",
    ):
        assert expected in " ".join(text.split())
    for present in ("started until", "78 was fatal", " running "):
        assert present not in text, "nobody waits any more"
    lock = lock_state(tmp_path)
    for expected in ("running since", "held: #2: 1 of max 1 are", "started until", "78 was fatal", " running "):
        assert expected in shown(tmp_path)
    lock.close()


class TestProgramsOfAnActivatorThatIsDown:
    """They may have ended meanwhile."""

    def left(self, folder: Path, *programs: tuple[str, Identity | None], host: str = "") -> dict[str, Any]:
        with Store(folder) as store, store.transaction():
            about = store.about()
            about.config_file, about.host, about.seen_ms = "/etc/a.toml", host, NOW_MS
            store.save_about(about)
            entry = ProgramEntry(queue="orders", command="true", max=4).policy("salt").entry
            running = {session: Program(NOW_MS - 9_000) for session, _ in programs}
            store.save_queue("orders", QueueRecord(QueueActivator(running, entry=entry), NOW_MS, "started", "#1"))
            for session, identity in programs:
                assert identity is not None
                store.add_program(ProgramRecord(session, "orders", identity))
        status = read_status(folder, NOW_MS)
        [row] = status["queues"]
        assert row["running"] == len(row["pids"]) == len(row["programs"])
        return {"pids": row["pids"], "are_programs_known": status["are_programs_known"], "text": words_of(folder)}

    def test_of_those_of_this_machine_only_the_ones_that_run_are_named(self, tmp_path: Path) -> None:
        own = identity_of(os.getpid())
        assert own is not None
        ended, reused = subprocess.Popen(["true"]), replace(own, start_ticks=own.start_ticks - 1)
        of_ended = replace(own, pid=ended.pid)
        ended.wait()
        found = self.left(tmp_path, ("runs", own), ("ended", of_ended), ("reused", reused))
        assert (found["pids"], found["are_programs_known"]) == ([own.pid], True)
        assert f"not running; 1 program that it has started still runs: orders (process {own.pid})." in found["text"]
        assert "1/4" in found["text"]
        assert " running " in found["text"]

    def test_after_a_restart_of_the_machine_none_runs(self, tmp_path: Path) -> None:
        found = self.left(tmp_path, ("s", Identity(1, 2, "an earlier boot")), host=socket.gethostname())
        assert (found["pids"], found["are_programs_known"]) == ([], True)
        assert "not running; none of its programs runs" in found["text"]
        assert "0/4" in found["text"]

    def test_those_of_another_machine_may_still_run(self, tmp_path: Path) -> None:
        found = self.left(tmp_path, ("s", Identity(7, 8, "its boot")), ("t", Identity(9, 8, "its boot")), host="vm-2")
        assert (found["pids"], found["are_programs_known"]) == ([7, 9], False)
        assert (
            "2 programs that it has started may still run on vm-2, which is unknown here: orders (process 7), orders "
            "(process 9). `kill PID` on vm-2 ends them, and the next start finds them" in found["text"]
        )
        assert " ran " in found["text"]


def words_of(folder: Path) -> str:
    return " ".join(shown(folder).split())


def test_what_was_known_of_programs_remains_when_the_activator_is_down(tmp_path: Path) -> None:
    log_file = tmp_path / "a.log"
    log_file.write_text("ImportError: no module\n")
    entry = ProgramEntry(queue="orders", command="true", log_file=str(log_file)).policy("salt").entry
    held = Held("id", 7, "", 1, NOW_MS, is_restart=True, blocked="gave up", retry_ms=NOW_MS + 600_000)
    gave_up = QueueActivator(held=held, crashes=6, entry=entry, ended=Ended(NOW_MS, "exit code 3"))
    group = ProgramEntry(group="parcels", command="true", log_file=str(log_file)).policy("salt").entry
    with Store(tmp_path) as store, store.transaction():
        about = store.about()
        about.config_file, about.seen_ms = "/etc/a.toml", NOW_MS
        store.save_about(about)
        store.save_queue("orders", QueueRecord(gave_up, NOW_MS, "exited", "exit code 3"))
        vain = QueueActivator(exits_without_receive=3, nobody_joined=True, entry=group)
        store.save_queue("parcels", QueueRecord(vain))
    status = read_status(tmp_path, NOW_MS + 24 * 3_600_000)
    console = Console(width=200, no_color=True)
    with console.capture() as capture:
        console.print(show(status, NOW_MS + 24 * 3_600_000))
    text = " ".join(capture.get().split())
    assert text.startswith("not running; none of its programs runs as of 2025-11-21 13:00:00 UTC (24 h ago)")
    last = "it had given up after 6 crashes in a row: exit code 3, the last one at 2025-11-21 13:00:00 UTC"
    assert f"{last} log {log_file}, last line: ImportError: no module" in text
    assert "3 programs in a row exited, and the observer has seen nobody join the consumer group parcels" in text


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "activator.db")
    connection.execute("CREATE TABLE queues (other)")
    connection.commit()
    connection.close()
    with pytest.raises(UserError, match="cannot be used"):
        Store(tmp_path)


def test_a_full_disk_is_an_error_of_the_user_and_leaves_what_is_recorded(tmp_path: Path) -> None:
    filled(tmp_path)
    with Store(tmp_path) as store:
        store._connection.execute("PRAGMA max_page_count = 1")  # the least that SQLite takes: what the file has
        with pytest.raises(UserError, match=r"disk is full\. Make room on its disk"), store.transaction():
            store.add_decision(ActivatorEvent(NOW_MS, "q", "held", "x" * 1_000_000))
    with Store(tmp_path) as store:
        assert [each.queue for each in store.decisions(10)] == ["orders"]
        assert "orders" in store.queues()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE about SET value = CAST('{' AS BLOB)",
        "UPDATE queues SET state = CAST('[]' AS BLOB)",
        "UPDATE queues SET state = 7",
        "DELETE FROM about",
        "DROP TABLE programs",
    ],
)
def test_a_damaged_row_is_an_error_of_the_user(tmp_path: Path, damage: str) -> None:
    filled(tmp_path)
    with closing(sqlite3.connect(tmp_path / "activator.db")) as connection, connection:
        connection.execute(damage)
    with pytest.raises(UserError, match=r"activator\.db cannot be used: .*remove it: it is their only record"):
        read_status(tmp_path, NOW_MS)


@pytest.mark.parametrize("begin", [0, 100, 4_096, 8_192, 12_288])
def test_a_damaged_page_is_an_error_of_the_user_or_harmless(tmp_path: Path, begin: int) -> None:
    filled(tmp_path)
    path = tmp_path / "activator.db"
    content = path.read_bytes()
    path.write_bytes(content[:begin] + b"\xff" * 2_000 + content[begin + 2_000 :])
    try:
        read_status(tmp_path, NOW_MS)
    except UserError as error:
        assert "remove it: it is their only record" in str(error)  # noqa: PT017 - damage of an unused part is harmless


def test_status_says_that_no_program_runs_and_why_a_notification_is_held(tmp_path: Path) -> None:
    held = Held("id-2", 8, "MESSAGES_ACCUMULATING", 5, NOW_MS, post_time="then")
    with Store(tmp_path) as store, store.transaction():
        store.save_queue("orders", QueueRecord(QueueActivator(held=held), NOW_MS, "exited", "exit code 0"))
    text = shown(tmp_path)
    assert "not running; none of its programs runs" in text
    assert "held: #8: a program is about to be started" in " ".join(text.split())


def test_queues_at_rest_whose_entry_was_removed_are_named_apart_and_not_in_red(tmp_path: Path) -> None:
    def save(queue: str, entry: str, **state: Any) -> None:
        store.save_queue(queue, QueueRecord(QueueActivator(entry=entry, **state), NOW_MS, "exited", "exit code 0"))

    with Store(tmp_path) as store, store.transaction():
        save("orders", ProgramEntry(queue="orders", command="true").policy("salt").entry)
        for number in range(12):
            save(f"gone-{number:02}", "", crashes=3, fatal_exit_code=78)
        save("a-lost", "")
        save("waits", "", held=Held("id-2", 8, "MESSAGES_ACCUMULATING", 5, NOW_MS))
        about = store.about()
        about.without_entry = ["a-lost"]
        store.save_about(about)
    console = Console(width=300, force_terminal=True, color_system="standard")
    with console.capture() as capture:
        console.print(show(read_status(tmp_path, NOW_MS), NOW_MS))
    text = capture.get()
    assert "at rest, and no longer in the config: gone-00, gone-01, " in text
    assert "gone-09, ..." in text
    assert text.count("a-lost") == 1, "a queue is named in one list"
    table = text[text.index("decision and reason") :]
    assert "orders" in table
    assert "waits" in table
    assert "gone" not in table
    assert "\x1b[31m" not in table, "no entry is no fault"


def test_status_says_how_old_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)
    with Store(tmp_path) as store:
        about = store.about()
        about.seen_ms = NOW_MS + 4_000
        store.save_about(about)
    assert shown(tmp_path, NOW_MS + 8_000).startswith("not running; ")
    assert "\nas of 13:00:04 UTC (4 s ago)\n" in shown(tmp_path, NOW_MS + 8_000)
    late = shown(tmp_path, NOW_MS + 64_000)
    assert "\nas of 13:00:04 UTC (60 s ago)\n" in late
    assert "sign of life" not in late, "it does not run, so it cannot hang"
    monkeypatch.setattr(statuses, "is_locked", lambda _: True)
    late = shown(tmp_path, NOW_MS + 64_000)
    assert late.startswith("its last sign of life is 60 s old, and there should be one every 5 s")
