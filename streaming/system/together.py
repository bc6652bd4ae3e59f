"""Several programs that run as one: they start together, and when one program ends, all others are stopped in order.

A program is a separate process, or a part of this process.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import wait
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from streaming.system import logs, start_progress
from streaming.system.processes import ChildProcess
from streaming.system.stop_signals import Flag, StopSignals, is_stop_code
from streaming.system.threads import started
from streaming.system.wrapped_text import fitted

_POLL_INTERVAL_S = 0.1
# Longest time for a program to end after SIGTERM, several times the duration of a batch. After a second signal, the
# time is shorter.
_STOP_TIMEOUT_S = 60.0
_HURRIED_TIMEOUT_S = 10.0
# If Kafka answers, a program ends sooner.
_SLOW_STOP_S = 5.0
# The output of a program may stay open in a process that it has started.
_OUTPUT_TIMEOUT_S = 1.0

# Called when a program is ready, with the names of the programs that are not.
OnReady = Callable[[Collection[str]], None]


@dataclass(frozen=True)
class Program:
    """A program that is a separate process.

    Attributes:
        name: Its name, which begins each of its lines.
        command: Its command line.
        ready: The line that it prints when it is ready.
        after: The programs that must be ready before it starts.
    """

    name: str
    command: Sequence[str]
    ready: str
    after: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Part:
    """A program that is a part of this process, and runs in a thread.

    Attributes:
        name: Its name, which begins each of its lines.
        run: Runs the part until the signals stop it; returns its exit code. The second argument prints a line.
        ready: The line that it prints when it is ready.
        after: The programs that must be ready before it starts.
    """

    name: str
    run: Callable[[StopSignals, Callable[[str], None]], int]
    ready: str
    after: frozenset[str] = frozenset()


class _Thread:
    """A part that runs, with the methods of a ChildProcess."""

    def __init__(self, part: Part, say: Callable[[str], None]) -> None:
        self._signals = StopSignals()
        self._code = started(partial(part.run, self._signals, say))

    def poll(self) -> int | None:
        return self._code.result() if self._code.done() else None

    def terminate(self) -> None:
        """Asks the part to end. The second call asks the part to hurry."""
        (self._signals.hurry if self._signals.stop.is_set() else self._signals.stop).set()

    def stop(self, timeout_s: float) -> int:
        """Waits for the end of the part. A thread cannot be killed: it ends with the process."""
        self.terminate()
        wait([self._code], timeout_s)
        return self._code.result() if self._code.done() else 1


_Running = ChildProcess | _Thread


class Together:
    """Programs that run together. Their lines go to standard output, each after the name of its program."""

    def __init__(
        self,
        programs: Sequence[Program | Part],
        environment: Mapping[str, str],
        ready: str,
        on_ready: OnReady = lambda _unready: None,
    ) -> None:
        """Prepares the programs.

        Args:
            programs: The programs, in the order in which they are stopped.
            environment: The programs' environment.
            ready: The line to print when all of them are ready.
            on_ready: Called when a program is ready. The last call comes before that line.
        """
        self._programs = programs
        self._environment = environment
        self._ready = ready
        self._on_ready = on_ready
        self._width = max(len(program.name) for program in programs)
        self._lock = threading.RLock()
        self._unready = {program.name for program in programs}
        self._said_stopped: set[str] = set()
        # The processes that were started: the time of the start, and of the next line about it.
        self._starts: dict[str, tuple[float, float]] = {}

    def run(self, signals: StopSignals) -> int:
        """Runs the programs until a stop signal arrives or one of them ends; returns the exit code.

        The exit code comes from the program that ended first by itself, or that failed while it was stopped.
        """
        with ExitStack() as stack:
            children: dict[str, _Running] = {}
            ended = 0
            while not ended and not signals.stop.is_set():
                self._start_due(children, stack)
                self._say_what_still_starts()
                if signals.stop.wait(_POLL_INTERVAL_S):
                    break  # programs that end now may have received the same signal
                for name, child in children.items():
                    if (code := child.poll()) is not None:
                        self._say(name, f"ended with exit code {_shell_code(code)}. Stopping the others")
                        # The others are not complete, even if this program ended without an error.
                        ended = ended or _shell_code(code) or 1
            hurry = signals.hurry if signals.stop.is_set() else signals.stop
            running = [program.name for program in self._programs if program.name in children]
            self._say_what_is_stopped([name for name in running if children[name].poll() is None], bool(ended))
            stopped = [self._stop(name, children[name], hurry) for name in running]
            # In a program that is stopped while it starts, the signal itself ends the process.
            return ended or next((_shell_code(code) for code in stopped if code and not is_stop_code(code)), 0)

    def _start_due(self, children: dict[str, _Running], stack: ExitStack) -> None:
        """Starts the programs whose turn it is."""
        for program in self._programs:
            if program.name not in children and self._unready.isdisjoint(program.after):
                children[program.name] = self._start(program, stack)

    def _say_what_still_starts(self) -> None:
        """Prints a line about each process that is not ready for some more seconds. Parts tell their own steps."""
        now_s = time.monotonic()
        with self._lock:
            for name, (begin_s, due_s) in self._starts.items():
                if name in self._unready and now_s >= due_s and start_progress.is_told():
                    self._starts[name] = begin_s, now_s + start_progress.AGAIN_S
                    self._say(name, start_progress.still("starting", now_s - begin_s))

    def _say_what_is_stopped(self, names: Sequence[str], has_ended: bool) -> None:
        if names:
            hurries = "Ctrl-C hurries" if has_ended else "A second Ctrl-C hurries"
            self._write(f"stopping {', then '.join(names)}. {hurries} them")

    def _start(self, program: Program | Part, stack: ExitStack) -> _Running:
        if isinstance(program, Part):
            with logs.after(self._head(program.name)):
                return _Thread(program, partial(self._take_line, program))
        now_s = time.monotonic()
        self._starts[program.name] = now_s, now_s + start_progress.AGAIN_S
        reading, writing = os.pipe()
        follower = threading.Thread(target=self._follow, args=(program, reading), name=program.name, daemon=True)
        stack.callback(follower.join, _OUTPUT_TIMEOUT_S)
        try:
            child = ChildProcess(program.command, log_file=writing, env=self._environment)
        finally:
            os.close(writing)
            follower.start()
        return stack.enter_context(child)

    def _follow(self, program: Program, reading: int) -> None:
        """Prints the lines of a program until its output ends."""
        with open(reading, "rb") as lines:
            for line in lines:
                self._take_line(program, line.decode(errors="replace").rstrip("\n"))

    def _take_line(self, program: Program | Part, text: str) -> None:
        """Prints a line of a program."""
        with self._lock:
            self._say(program.name, text)
            if text == f"{program.name} stopped":
                self._said_stopped.add(program.name)
            if text == program.ready and program.name in self._unready:
                self._unready.remove(program.name)
                self._on_ready(self._unready)
                if not self._unready:
                    self._write(self._ready)

    def _say(self, name: str, text: str) -> None:
        head = self._head(name)
        self._write(head + text, len(head))

    def _head(self, name: str) -> str:
        return f"{name:<{self._width}} | "

    def _write(self, text: str, hang: int = 0) -> None:
        with self._lock:
            sys.stdout.write(fitted(text, sys.stdout, hang) + "\n")
            sys.stdout.flush()

    def _stop(self, name: str, child: _Running, hurry: Flag) -> int:
        """Stops a program; returns its exit code. When `hurry` is set, the program gets a second signal."""
        child.terminate()
        is_hurried = is_told = False
        begin_s = time.monotonic()
        deadline_s = begin_s + _STOP_TIMEOUT_S
        while (code := child.poll()) is None and time.monotonic() < deadline_s:
            if hurry.is_set() and not is_hurried:
                is_hurried = True
                child.terminate()
                deadline_s = min(deadline_s, time.monotonic() + _HURRIED_TIMEOUT_S)
            if time.monotonic() >= begin_s + _SLOW_STOP_S and not is_told:
                is_told = True
                self._say_why_slow(name, deadline_s - time.monotonic(), is_hurried)
            time.sleep(_POLL_INTERVAL_S)
        # Kills a program that does not end.
        return child.stop(0.0) if code is None else code

    def _say_why_slow(self, name: str, left_s: float, is_hurried: bool) -> None:
        """Prints the line about a program that has not ended, although it may have said that it is stopped."""
        shortens = "" if is_hurried else f". Ctrl-C shortens that to {_HURRIED_TIMEOUT_S:.0f} s"
        with self._lock:
            is_stopped = name in self._said_stopped
            busy = "its process has not ended yet, which takes some seconds on a busy machine"
            why = busy if is_stopped else "still stopping, which takes some 10 s if Kafka does not answer"
            self._say(name, f"{why}. It may take {left_s:.0f} s more{shortens}")


def _shell_code(code: int) -> int:
    """Returns an exit code as a shell shows it. If a signal has ended the program, `code` is negative."""
    return 128 - code if code < 0 else code
