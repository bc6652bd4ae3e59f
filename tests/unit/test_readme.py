"""Whoever follows the documents gets no further than they are right: commands, links and Python in them exist."""

import ast
import importlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command_lines import (
    COMMAND,
    ROOT,
    VARIABLE_PREFIX,
    all_variables,
    check_make,
    fenced_blocks,
    parse,
    shell_commands,
    split_assignments,
)

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
# Programs of others that the documents may use, besides what every shell has.
FOREIGN = frozenset(("docker", "kcat"))
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_ANY_VARIABLE = re.compile(rf"\b{VARIABLE_PREFIX}[A-Z_]+\b")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def commands_of(document: str) -> list[list[str]]:
    return [words for block in fenced_blocks(document, "sh") for words in shell_commands(block)]


def inline_commands_of(document: str) -> list[list[str]]:
    """Commands between single backquotes, as far as they are whole command lines."""
    quoted = [" ".join(text.split()) for text in re.findall(r"`([^`]+)`", _FENCED.sub("", document))]
    return [text.split() for text in quoted if re.match(rf"({COMMAND}|make) \S", text)]


def check_command(words: list[str], environment: dict[str, str]) -> None:
    program, *arguments = words
    name = program.rpartition("/")[2]
    if name == COMMAND:
        check_queue_activation(arguments, environment)
    elif name == "spark-submit":
        program = next(word for word in arguments if word.endswith(".py"))
        check_python([program])
        check_queue_activation(arguments[arguments.index(program) + 1 :], environment)
    elif name == "make":
        check_make(arguments)
    elif name.startswith("python"):
        check_python(arguments)
    elif name not in FOREIGN and not program.startswith((".venv/", "build/")):
        assert shutil.which(program) or program == ".", f"what is {program}?"


def check_queue_activation(arguments: list[str], environment: dict[str, str]) -> None:
    parse(arguments, environment)


def check_python(arguments: list[str]) -> None:
    if arguments[:1] == ["-m"] and arguments[1] != "venv":
        assert importlib.util.find_spec(arguments[1]), f"there is no module {arguments[1]}"
    elif not arguments[0].startswith("-"):
        assert (ROOT / arguments[0]).is_file(), f"there is no {arguments[0]}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_commands_exist_with_their_options(path: Path) -> None:
    document = path.read_text()
    environment: dict[str, str] = {}
    for words in commands_of(document):
        assignments, command = split_assignments(words)
        assert {name for name in assignments if name.startswith(VARIABLE_PREFIX)} <= all_variables()
        environment |= assignments
        if command:
            check_command(command, environment)
    for command in inline_commands_of(document):
        if command[0] == COMMAND and len(command) == 2:
            parse([command[1], "--help"])  # the name of a command, not a whole command line
        else:
            check_command(command, {})


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_environment_variables_exist(path: Path) -> None:
    assert set(_ANY_VARIABLE.findall(path.read_text())) <= all_variables()


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    for target in _LINK.findall(path.read_text()):
        if re.match(r"https?:", target):
            continue
        file, _, anchor = target.partition("#")
        document = path.parent / file if file else path
        assert document.is_file(), f"{target} is missing"
        assert not anchor or anchor in anchors_of(document.read_text()), f"{target} has no such heading"


def anchors_of(document: str) -> set[str]:
    """The anchors that GitHub makes of headings."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_python_compiles_and_its_imports_exist(path: Path) -> None:
    for block in fenced_blocks(path.read_text(), "python"):
        tree = ast.parse(block)
        compile(tree, path.name, "exec")
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    importlib.import_module(alias.name)
            elif isinstance(node, ast.ImportFrom):
                module = importlib.import_module(node.module or "")
                for alias in node.names:
                    assert hasattr(module, alias.name), f"{node.module} has no {alias.name}"


def test_the_tests_would_notice() -> None:
    with pytest.raises(LookupError, match="moniter"):
        check_command(["queue-activation", "moniter"], {})
    with pytest.raises(Exception, match="No such option: --queue"):
        check_command([".venv/bin/queue-activation", "monitor", "--queue", "q"], {})
    with pytest.raises(Exception, match="is no duration"):
        check_command(["queue-activation", "monitor"], {"QUEUE_ACTIVATION_QUIET_WINDOW": "5"})
    with pytest.raises(AssertionError, match="no deploy"):
        check_command(["make", "deploy"], {})
    with pytest.raises(AssertionError, match="what is"):
        check_command(["queue-activatoin", "demo"], {})


def test_make_setup_ends_with_what_is_there_and_what_to_type_next() -> None:
    done = subprocess.run(["make", "-n", "setup"], cwd=ROOT, capture_output=True, text=True, check=True)
    last = done.stdout.split("queue-activation prepare")[-1]
    assert "There are now" in last
    assert "make demo" in last


def test_the_documents_have_commands() -> None:
    readme = (ROOT / "README.md").read_text()

    assert [COMMAND, "activator", "status"] in commands_of(readme)
    assert ["make", "demo"] in commands_of(readme)
    assert [COMMAND, "queue", "show", "orders"] in commands_of(readme)
    assert len(fenced_blocks(readme, "python")) >= 2
