"""Finds the Java that runs Spark, Ivy and the embedded broker. No Java is bundled."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from streaming.errors import UserError

# Spark 4.2 and Kafka 4.3 both run on this version.
MIN_JAVA_VERSION = 17
# A JVM that has printed nothing after this time hangs. Normally it takes 0.1 s.
_VERSION_TIMEOUT_S = 30
_WHAT_TO_DO = (
    f"Install a Java {MIN_JAVA_VERSION} or newer runtime (on Debian and Ubuntu the package "
    f"openjdk-{MIN_JAVA_VERSION}-jre-headless), or set JAVA_HOME to one."
)


def find_java() -> Path:
    """Returns the path of $JAVA_HOME/bin/java or, without JAVA_HOME, of the first java on the PATH.

    Raises:
        UserError: There is no Java, or it is older than Java 17.
    """
    java = _candidate()
    try:
        result = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=True, timeout=_VERSION_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"{java} cannot be run: {error}. {_WHAT_TO_DO}") from error
    version = _major_version(result.stderr + result.stdout)
    if version is None:
        raise UserError(f"{java} does not report its version. {_WHAT_TO_DO}")
    if version < MIN_JAVA_VERSION:
        raise UserError(f"{java} is Java {version}, which is too old. {_WHAT_TO_DO}")
    return java


def can_compile(java: Path) -> bool:
    """Returns whether a Java can run a source file. A runtime without its tools has no compiler."""
    listed = subprocess.run(
        [java, "--list-modules"], capture_output=True, text=True, check=False, timeout=_VERSION_TIMEOUT_S
    )
    return "jdk.compiler@" in listed.stdout


def _candidate() -> Path:
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise UserError(f"JAVA_HOME is {home}, but there is no bin/java in it. {_WHAT_TO_DO}")
        return java
    on_path = shutil.which("java")
    if on_path is None:
        raise UserError(f"No Java was found: JAVA_HOME is not set, and there is no java on the PATH. {_WHAT_TO_DO}")
    return Path(on_path)


def _major_version(text: str) -> int | None:
    """Returns 17 for `openjdk version "17.0.15"`, and 8 for `java version "1.8.0_402"`, the form before Java 9."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None
