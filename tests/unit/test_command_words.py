"""What becomes of names in command lines: a part of one argument, never a program, a script or an option."""

import pytest

from streaming import command_words
from streaming.command_words import OptionLikeNameError

NAMES = {"queue": "QUEUE_ACTIVATION_QUEUE", "procedure": "QUEUE_ACTIVATION_PROCEDURE"}


@pytest.mark.parametrize(
    "name", ["a b", "a; rm -rf /", "$(id)", "`id`", "a'b\"c", "../../etc/passwd", "a|b&c>d", "{procedure}", "*", "a-b"]
)
def test_whatever_is_in_a_name_it_stays_in_its_word(name: str) -> None:
    words = command_words.split("read --queue={queue} {queue} 'of {queue}' {procedure}")
    filled = command_words.fill(words, {"queue": name, "procedure": "p"})
    assert filled == ["read", f"--queue={name}", name, f"of {name}", "p"]


@pytest.mark.parametrize(
    ("command", "queue", "procedure"),
    [
        ("read {queue}", "--bootstrap-servers=elsewhere", ""),
        ("read {queue}.log", "-x", ""),
        ("read {procedure}{queue}", "-x", ""),
        ("read {queue}", "-", ""),
        ("read x {procedure}", "q", "-exec"),
    ],
)
def test_a_name_becomes_no_option(command: str, queue: str, procedure: str) -> None:
    with pytest.raises(OptionLikeNameError, match="would be taken for an option of read"):
        command_words.fill(command_words.split(command), {"queue": queue, "procedure": procedure})


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("{queue}", "which program is started"),
        ("/srv/{procedure}/run", "which program is started"),
        ("sh -c 'read {queue} | tee log'", "$QUEUE_ACTIVATION_QUEUE"),
        ("/bin/bash -e -o pipefail -c 'read {queue}'", "$QUEUE_ACTIVATION_QUEUE"),
        ("/bin/bash -euc 'read {procedure}'", "$QUEUE_ACTIVATION_PROCEDURE"),
        ("sh -c 'read \"$0\"' {queue}", None),
        ("sh script.sh {queue}", None),
        ("python -c {queue}", None),
        ([], "must not be empty"),
        (" ", "must not be empty"),
    ],
)
def test_a_command_line_that_would_run_names_is_refused(command: str | list[str], what: str | None) -> None:
    problem = command_words.problem(command_words.split(command), NAMES)
    if what is None:
        assert problem is None
    else:
        assert problem is not None
        assert what in problem
