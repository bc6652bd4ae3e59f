"""Each sentence of the lists in docs/ has tests that exist, and bugs to plant that fit into the code."""

import re
import shutil
from pathlib import Path

import pytest

from tests.mutations import check
from tests.mutations.bug import Bug, MisfitError
from tests.mutations.catalogue import Planted, all_planted
from tests.mutations.check import Outcome, main, nodes_for, try_bug
from tests.mutations.sentences import LISTS, Sentence, sentences
from tests.support.command_lines import ROOT
from tests.support.names_of_tests import names_of_tests

RESULT = ROOT / "docs" / "activation-page.md"
# Enough of a checkout for one test.
RULE = """def doubled(number: int) -> int:
    return 2 * number
"""
TEST = """from streaming.rules import doubled


def test_doubling() -> None:
    assert doubled(2) == 4
"""


@pytest.mark.parametrize("name", LISTS)
def test_each_test_that_a_list_names_exists(name: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / LISTS[name]).read_text()))
    assert sorted(named - names_of_tests()) == []


@pytest.mark.parametrize("name", LISTS)
def test_each_sentence_has_a_test_and_a_bug(name: str) -> None:
    listed = sentences(name)
    assert len(listed) > 10
    assert [each.text for each in listed if not each.tests] == []
    with_bugs = {each.sentence.text for each in all_planted() if each.list_name == name}
    assert [each.text for each in listed if each.text not in with_bugs] == []


def test_each_bug_fits_into_the_code() -> None:
    for each in all_planted():
        each.bug.planted(ROOT)


def test_the_document_has_the_result() -> None:
    outcomes = [(each, Outcome.FOUND) for each in all_planted() if nodes_for(each, with_integration=False)]
    assert check.table(outcomes, list(LISTS)) in RESULT.read_text(), "run: python -m tests.mutations.check"


def test_a_bug_that_no_longer_fits_is_an_error() -> None:
    with pytest.raises(MisfitError, match="has 0 times, instead of once, the text 'no such text'"):
        Bug("core/times.py", "no such text", "").planted(ROOT)
    with pytest.raises(MisfitError, match="instead of once, the text 'import'"):
        Bug("core/activation/queue.py", "import", "").planted(ROOT)


def test_a_bug_that_no_longer_fits_ends_the_program_with_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    misfit = Planted(
        "routing", Sentence("A sentence", "", ("test_each_line",)), Bug("core/times.py", "no such text", "")
    )
    monkeypatch.setattr(check, "all_planted", lambda: [misfit])
    assert main([]) == 2
    assert "A bug no longer fits: streaming/core/times.py has 0 times" in capsys.readouterr().err


def test_the_help_says_what_the_exit_codes_mean(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "Exit code 0: all bugs are found." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("new", "outcome"),
    [
        ("return 2 * number + 1", Outcome.FOUND),
        ("return number + number", Outcome.NOT_FOUND),
        ("return 2 // 0", Outcome.CRASHED),
        ("return missing", Outcome.CRASHED),
    ],
)
def test_a_bug_is_found_if_a_test_fails_and_not_if_the_product_crashes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, new: str, outcome: Outcome
) -> None:
    for checkout in (tmp_path / "original", tmp_path / "copy"):
        for name, text in (("streaming/rules.py", RULE), ("streaming/__init__.py", ""), ("tests/test_rules.py", TEST)):
            path = checkout / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        shutil.copy(ROOT / "pyproject.toml", checkout)
    monkeypatch.setattr(check, "ROOT", tmp_path / "original")
    monkeypatch.setattr(check, "_TIMEOUT_S", 600)  # on a busy machine, a start of pytest takes more than a minute
    planted = Planted("routing", Sentence("2 * 2 = 4", "", ()), Bug("rules.py", "return 2 * number", new))
    assert try_bug(planted, (tmp_path / "copy").resolve(), ["tests/test_rules.py"])[0] is outcome
    assert (tmp_path / "copy" / "streaming" / "rules.py").read_text() == RULE
