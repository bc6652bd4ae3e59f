"""Programs that run what their command line says: interpreters, and wrappers that run another program.

A name from a record must not become the script, the program or an option of such a program. So the words between the
program and the name must be fixed, they must be known here, and what is run must be one of them. An option that is not
in the table is unknown, because it might take the next word as its value.
"""

import re
from dataclasses import dataclass
from pathlib import PurePath

# python3.11, lua5.4
_VERSION = re.compile(r"[-.\d]+$")
_ASSIGNMENT = re.compile(r"\w+=")
_SHELL_CODE = re.compile("-[a-zA-Z]*c[a-zA-Z]*")


@dataclass(frozen=True)
class _Runner:
    """The syntax that tells a program what to run. Options are patterns, each for one whole word.

    Attributes:
        flags: Options that are complete in one word.
        valued: Options whose value is the next word.
        code: Options whose value, the next word, is what is run; further options may follow.
        last: Like `code`, but all words after the value belong to what is run.
        operands: The number of words before what is run.
        is_wrapper: Whether what is run is a command line.
        is_shell: Whether `-c` is possible, after which one more word, `$0`, follows what is run.
    """

    flags: str = ""
    valued: str = ""
    code: str = ""
    last: str = ""
    operands: int = 0
    is_wrapper: bool = False
    is_shell: bool = False


def _table() -> dict[str, _Runner | None]:
    """Returns the programs by their names without a version; None for a program with no safe place for a name."""
    letters = "[abcefhlmnuvxC]"
    shell = _Runner(flags=f"-{letters}+|--(login|noprofile|norc|posix)", valued=f"-{letters}*[oO]", is_shell=True)
    python = _Runner(flags="-[bBdEiIOPqsSuv]+", valued="-[bBdEiIOPqsSuv]*[WX]", last="-[bBdEiIOPqsSuv]*[cm]")
    perl = _Runner(flags=r"-[aclnpw]+|-[IM]\S+", valued="-I", code="-[aclnpw]*[eE]")
    ruby = _Runner(flags=r"-[alnpw]+|-[Ir]\S+", valued="-[Ir]", code="-[alnpw]*e")
    node = _Runner(flags=r"--[\w-]+=\S+", valued="-r|--(require|import)", code="-[ep]|--(eval|print)")
    awk = _Runner(flags=r"-F\S+", valued="-[Fv]", code="-f")
    java = _Runner(
        flags=r"-[DX]\S+|-ea|-server|-javaagent:\S+|--[\w-]+=\S+",
        valued="-cp|-classpath|--class-path|-p|--module-path",
        last="-jar|-m|--module",
    )
    interpreters = {
        **dict.fromkeys(("sh", "bash", "dash", "ash", "ksh", "mksh", "zsh"), shell),
        **dict.fromkeys(("python", "pypy"), python),
        "perl": perl,
        "ruby": ruby,
        "java": java,
        **dict.fromkeys(("node", "nodejs"), node),
        **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), awk),
        "fish": _Runner(code="-c|--command"),
        "php": _Runner(flags="-[nq]", valued="-[cd]", code="-[fr]"),
        "lua": _Runner(flags="-[WE]", valued="-[el]"),
        "sed": _Runner(flags="-[nErsz]+", code="-[nErsz]*[ef]"),
        **dict.fromkeys(("csh", "tcsh", "tclsh", "wish", "expect", "Rscript", "julia", "pwsh", "guile"), _Runner()),
    }
    # These programs pass their words to a shell, or may run any of them.
    unsafe = dict.fromkeys(("su", "runuser", "script", "watch", "parallel", "ssh", "make", "eval"), None)
    return {**interpreters, **_wrappers(), **unsafe}


def _wrappers() -> dict[str, _Runner]:
    env = _Runner(flags=r"-i|--ignore-environment|--(unset|chdir)=\S+", valued="-[uC]", is_wrapper=True)
    timeout = _Runner(
        flags=r"-v|--(verbose|foreground|preserve-status)|-[ks]\w+|--(signal|kill-after)=\S+",
        valued="-[ks]|--signal|--kill-after",
        operands=1,
        is_wrapper=True,
    )
    xargs = _Runner(flags=r"-[0rtx]+|-[nPL]\d+", valued="-[nPLIda]", is_wrapper=True)
    bare = ("nohup", "exec", "command", "busybox", "toybox", "tini", "dumb-init", "-exec", "-execdir", "-ok", "-okdir")
    return {
        **dict.fromkeys(bare, _Runner(is_wrapper=True)),
        "env": env,
        "timeout": timeout,
        "xargs": xargs,
        "nice": _Runner(flags=r"-\d+|-n-?\d+|--adjustment=-?\d+", valued="-n|--adjustment", is_wrapper=True),
        "ionice": _Runner(flags=r"-t|-[cn]\d+", valued="-[cn]", is_wrapper=True),
        "stdbuf": _Runner(flags=r"-[ioe]\w+|--(input|output|error)=\w+", valued="-[ioe]", is_wrapper=True),
        "setsid": _Runner(flags="-[cfw]+", is_wrapper=True),
        "time": _Runner(flags="-[apqv]+", valued="-[fo]", is_wrapper=True),
        "sudo": _Runner(flags="-[nEHS]+", valued="-[ug]", is_wrapper=True),
        "doas": _Runner(flags="-n", valued="-u", is_wrapper=True),
        "gosu": _Runner(operands=1, is_wrapper=True),
        "chroot": _Runner(flags=r"--(userspec|groups)=\S+", operands=1, is_wrapper=True),
        "flock": _Runner(flags="-[sxnoF]+", valued="-[wE]", operands=1, is_wrapper=True),
        "unshare": _Runner(flags="-[muinpUfr]+", is_wrapper=True),
        "nsenter": _Runner(flags="-[muinpUa]+", valued="-t", is_wrapper=True),
        "taskset": _Runner(flags="-[ac]+", operands=1, is_wrapper=True),
        "chrt": _Runner(flags="-[bfior]", operands=1, is_wrapper=True),
    }


_RUNNERS = _table()


@dataclass(frozen=True)
class Problem:
    """A name that might be run, and its place in the command line."""

    name: str
    where: str


class _MightRunError(Exception):
    """A program might run the next name; the message gives the place of that name."""


def problem(words: list[str], names: list[str]) -> Problem | None:
    """Returns the first name that might be run, or None. `names` has the name in each word, or an empty text."""
    at = 0
    while any(names[at:]):
        try:
            at = _go_on(words, names, at)
        except _MightRunError as error:
            return Problem(next(name for name in names[at:] if name), str(error))
    return None


def _go_on(words: list[str], names: list[str], at: int) -> int:
    """Returns the next word to look at: the following word, or the word after what the program at this word runs.

    Raises:
        _MightRunError: The program at this word might run the next name.
    """
    program = PurePath(words[at]).name
    key = _VERSION.sub("", program)
    if names[at] or key not in _RUNNERS:
        return at + 1
    runner = _RUNNERS[key]
    if runner is None:
        raise _MightRunError(f"after {program}, which might run it")
    first, has_code = _skip_own_words(runner, words, names, at + 1)
    if has_code:
        return first
    if names[first]:
        raise _MightRunError(f"where {program} expects an option or a program to run")
    if runner.is_wrapper:
        return first
    has_own_name = runner.is_shell and any(_SHELL_CODE.fullmatch(word) for word in words[at + 1 : first])
    return first + 1 + has_own_name


def _skip_own_words(runner: _Runner, words: list[str], names: list[str], at: int) -> tuple[int, bool]:
    """Returns the first word that is not the program's own, and whether an option has already named what is run."""
    operands, has_code = runner.operands, False
    # There is a name ahead, and a name ends the loop, so no name is skipped.
    while not names[at]:
        word = words[at]
        if re.fullmatch(f"{runner.valued}|{runner.code}|{runner.last}", word):
            at += 1
            if names[at]:
                return at, False
            if re.fullmatch(runner.last, word):
                return at + 1, True
            has_code |= re.fullmatch(runner.code, word) is not None
        elif word.startswith(("-", "+")):
            # The words after `--` are treated as if `--` were not there. At worst this demands one more fixed word.
            if word != "--" and not re.fullmatch(runner.flags, word):
                raise _MightRunError(f"after `{word}`, an option that this check does not know")
        elif operands:
            operands -= 1
        elif not (runner.is_wrapper and _ASSIGNMENT.match(word)):
            break
        at += 1
    return at, has_code
