"""The activator's config file: a few lines are enough, and an error names the entry with the invalid value."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from streaming.daemons.activator.config import Config
from streaming.errors import UserError
from streaming.system import toml_file

SALT = "salt"
SMALL = """
[[programs]]
queue = "orders*"
command = "python reader.py --queue {queue} 'two words'"
max = 4
"""


def load(folder: Path, text: str) -> Config:
    path = folder / "activator.toml"
    path.write_text(text)
    return toml_file.load(path, Config)


def entry(**fields: Any) -> str:
    fields = {"queue": "q", "command": "true"} | fields
    return "\n".join(["[[programs]]", *(f"{name} = {json.dumps(value)}" for name, value in fields.items())]) + "\n"


def test_a_small_config(tmp_path: Path) -> None:
    config = load(tmp_path, SMALL)
    orders = config.entry_for("orders.eu")
    assert orders is not None
    assert orders.command_for("orders.eu") == ["python", "reader.py", "--queue", "orders.eu", "two words"]
    assert orders.log_file_for("orders.eu") is None
    policy = orders.policy(SALT)
    assert (policy.min_programs, policy.max_programs, policy.max_restarts) == (0, 4, 5)
    assert (policy.startup_grace_ms, policy.backoff_ms, policy.max_backoff_ms) == (10_000, 1_000, 60_000)
    assert (policy.success_exit_codes, policy.fatal_exit_codes) == (frozenset({0}), frozenset())
    assert config.entry_for("invoices") is None


def test_a_queue_has_the_first_entry_that_matches(tmp_path: Path) -> None:
    config = load(tmp_path, entry(queue="a") + entry(queue="[ab]", max=2) + entry(queue="*", max=3))
    limits = [found.max for queue in ("a", "b", "c") if (found := config.entry_for(queue)) is not None]
    assert limits == [1, 2, 3]


def test_a_command_of_words_is_not_split(tmp_path: Path) -> None:
    words = ["run", "for all", "--of", "{queue}", '{"json": 1}']
    found = load(tmp_path, entry(command=words)).entry_for("q")
    assert found is not None
    assert found.command_for("q") == ["run", "for all", "--of", "q", '{"json": 1}']


def test_other_braces_are_the_programs_own(tmp_path: Path) -> None:
    words = ["sh", "-c", "awk '{print}' ${HOME}/$${x}"]
    found = load(tmp_path, entry(command=words, log_file="${x}{queue}.log")).entry_for("q")
    assert found is not None
    assert found.command_for("q") == words
    assert found.log_file_for("q") == Path("${x}q.log")


def test_an_entry_of_0_2_0_does_not_count_as_changed(tmp_path: Path) -> None:
    kept = json.loads(load(tmp_path, entry()).programs[0].policy(SALT).entry)
    names = "queue command notification min max directory environment log_file startup_grace success_exit_codes"
    assert [*kept] == [*names.split(), "fatal_exit_codes", "backoff", "max_backoff", "max_restarts"]


def test_the_queue_of_a_group_has_its_name(tmp_path: Path) -> None:
    text = '[[programs]]\ngroup = "orders-readers"\ncommand = "read"\n'
    [found] = load(tmp_path, text).programs
    assert found.queue == "orders-readers"
    assert found.watches("orders-readers")
    assert not found.watches("orders")
    assert found.policy(SALT).startup_grace_ms == 60_000
    [named] = load(tmp_path, text + 'queue = "orders"\nstartup_grace = "5s"\n').programs
    assert named.queue == "orders"
    assert named.watches("orders-readers")
    assert named.policy(SALT).startup_grace_ms == 5_000
    assert not load(tmp_path, entry()).programs[0].watches("q")


def test_a_pattern_of_groups_is_one_of_queues_too(tmp_path: Path) -> None:
    [found] = load(tmp_path, '[[programs]]\ngroup = "orders-*"\ncommand = "read {queue}"\n').programs
    assert found.watches("orders-eu")
    assert found.matches("orders-eu")
    assert found.command_for("orders-eu") == ["read", "orders-eu"]


def test_a_log_file_stays_in_its_folder(tmp_path: Path) -> None:
    found = load(tmp_path, entry(queue="*", log_file="logs/{queue}.log")).entry_for("a/../b")
    assert found is not None
    assert found.log_file_for("a/../b") == Path("logs/a_.._b.log")


def test_an_entry_can_be_for_one_event_notification(tmp_path: Path) -> None:
    found = load(tmp_path, entry(notification="mine")).entry_for("q")
    assert found is not None
    assert [found.wants(name) for name in ("mine", "another", None)] == [True, False, True]
    every = load(tmp_path, entry()).entry_for("q")
    assert every is not None
    assert every.wants("another")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"queue": ""}, "`queue` is missing or empty, and there is no `group`"),
        ({"command": " "}, "`command` must not be empty"),
        ({"command": ""}, "`command` is missing or empty"),
        ({"command": []}, "`command` is missing or empty"),
        ({"command": "sh -c 'x"}, "`command` is not a valid command line: No closing quotation"),
        ({"command": "{queue} --all"}, "`command` must not let {queue} choose the program"),
        ({"command": "sh -c 'read {queue}'"}, "`command` has {queue} inside 'read {queue}'. It must be a word"),
        ({"command": "read --of={queue}"}, "`command` has {queue} inside '--of={queue}'. It must be a word"),
        ({"queue": "a;b", "command": "read {queue}"}, "`queue`: 'a;b' cannot replace {queue} in the command line"),
        ({"max": 0}, "`max` must be at least 1 and at most 32767"),
        ({"min": 3, "max": 2}, "`max` must be at least 3, the value of `min`, and at most 32767"),
        ({"min": -1}, "`min` must be at least 0"),
        ({"queue": "q*", "min": 1}, "`min` needs a queue's name"),
        ({"max_restarts": -1}, "`max_restarts` must be at least 0"),
        ({"success_exit_codes": [256]}, "`success_exit_codes` must contain numbers from -64"),
        ({"fatal_exit_codes": [3, 0]}, "`fatal_exit_codes` contains 0, which `success_exit_codes` contains too"),
        ({"directory": "/nowhere/at/all"}, "`directory` does not exist: /nowhere/at/all"),
        ({"startup_grace": "10"}, "`startup_grace`: '10' is not a duration"),
        ({"max_backoff": "1ms"}, "`max_backoff` must not be shorter than `backoff`, which is 1s"),
        ({"group": ""}, "`group` must not be empty"),
        ({"group": "g*"}, "`queue` must not be given beside a pattern"),
        ({"group": "g", "queue": "q*"}, "`queue` must be a name, because `group` is one"),
        (
            {"group": "a.b.c.d", "queue": ""},
            "`group`: 'a.b.c.d' is no valid name of a queue, which has one to three parts of 1-128 characters with "
            "dots between them, and no control characters. Name the queue with `queue`",
        ),
        ({"group": "g", "queue": "a..b"}, "`queue`: 'a..b' is no valid name of a queue, which has one to three parts"),
        ({"group": "g", "idle_stop": ""}, "`idle_stop`: '' is not a duration"),
        ({"group": "g", "commit_interval": "x"}, "`commit_interval`: 'x' is not a duration"),
        ({"group": "g", "idle_stop": "0s"}, "`idle_stop`: '0s' is not a duration"),
        ({"idle_stop": "5m"}, "`idle_stop` needs a `group`"),
        ({"group": "g", "offset_reset": "none"}, "Invalid enum value 'none'. It can be 'earliest' or 'latest'"),
        ({"topics": ["t"]}, "`topics` needs a `group`"),
        ({"renew_offsets": True}, "`renew_offsets` needs a `group`"),
        ({"anchor": True}, "`anchor` needs a `group`"),
        ({"group": "g", "anchor": True, "topics": ["t"]}, '`anchor` needs `offset_reset = "latest"`'),
        ({"group": "g", "anchor": True, "offset_reset": "latest"}, "`anchor` needs"),
        ({"comand": "x"}, "Object contains unknown field `comand`. Did you mean `command`?"),
    ],
)
def test_an_error_names_its_entry(tmp_path: Path, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(UserError) as raised:
        load(tmp_path, entry(**fields))
    place, _, rest = str(raised.value).partition("activator.toml: ")[2].partition(": ")
    assert place.startswith("[[programs]] number 1")
    assert rest.startswith(reason)


def test_an_unsafe_queue_name_is_refused_only_if_the_command_contains_it(tmp_path: Path) -> None:
    found = load(tmp_path, entry(queue="*", command="read {queue}")).entry_for("-x")
    assert found is not None
    assert found.refusal("x") is None
    assert "'-x' cannot replace {queue}" in str(found.refusal("-x"))
    plain = load(tmp_path, entry(queue="-x")).entry_for("-x")
    assert plain is not None
    assert plain.refusal("-x") is None
    assert plain.command_for("-x") == ["true"]


def test_no_secret_of_the_environment_is_kept_on_disk(tmp_path: Path) -> None:
    first, again, second = (
        load(tmp_path, entry() + f'environment = {{ TOKEN = "{token}" }}\n').programs[0]
        for token in ("secret-1", "secret-1", "secret-2")
    )
    kept = first.policy(SALT).entry
    assert "secret" not in kept
    assert kept == again.policy(SALT).entry
    assert kept != second.policy(SALT).entry


def test_a_guess_of_the_environment_cannot_be_tried_without_the_salt(tmp_path: Path) -> None:
    read = load(tmp_path, entry() + 'environment = { TOKEN = "1234" }\n').programs[0]
    assert read.policy(SALT).entry != read.policy("another").entry
    assert hashlib.sha256(b'{"TOKEN":"1234"}').hexdigest() not in read.policy(SALT).entry


def test_an_empty_variable_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"number 1, queue 'q': `environment` has the invalid variable name 'A=B'"):
        load(tmp_path, entry() + 'environment = { "A=B" = "x" }\n')


def test_an_entry_that_would_never_be_used(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"number 2 is never used: the earlier entry `o\*` matches orders too"):
        load(tmp_path, entry(queue="o*") + entry(queue="orders"))
    with pytest.raises(UserError, match="`programs` is empty"):
        load(tmp_path, "programs = []\n")
