"""The daemon of Python workers: the PySpark it imports, and the silent end of a worker whose task is given up."""

import os
import socket
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.waiting import wait_until

DEADLINE_S = 60


def stderr_of(module: str, import_path: Sequence[str] = ()) -> str:
    """Returns the standard error of a daemon and its worker when Spark asks for a worker and gives it up at once."""
    told = {"PYTHONPATH": os.pathsep.join([*import_path, *sys.path])}
    told |= {"PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1", "PYTHON_UNIX_DOMAIN_ENABLED": "true"}
    with (
        # Not pytest's folder: the path of a socket has 107 bytes at most.
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [sys.executable, "-m", module, "pyspark.worker"],
            env=os.environ | told | {"PYTHON_WORKER_FACTORY_SOCK_DIR": folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as daemon,
    ):
        assert daemon.stdout is not None
        [length] = struct.unpack("!i", daemon.stdout.read(4))
        with socket.socket(socket.AF_UNIX) as sparks:
            sparks.connect(daemon.stdout.read(length))
            [worker] = struct.unpack("!i", sparks.recv(4, socket.MSG_WAITALL))
        wait_until(lambda: not Path(f"/proc/{worker}").exists(), DEADLINE_S, "the end of the worker")
        _, stderr = daemon.communicate(timeout=DEADLINE_S)  # the daemon ends when its standard input ends
    return stderr.decode()


def test_a_worker_whose_socket_is_closed_ends_silently() -> None:
    assert not stderr_of("streaming.spark.worker_daemon")


def test_the_installed_pyspark_is_imported_and_not_the_one_in_sparks_archive(tmp_path: Path) -> None:
    archive = tmp_path / "pyspark.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("pyspark/__init__.py", "raise ImportError('the archive was used')")
    assert not stderr_of("streaming.spark.worker_daemon", [str(archive)])


def test_pysparks_own_worker_writes_a_traceback() -> None:
    """Once this test fails, the daemon need not end its workers silently."""
    assert "BrokenPipeError" in stderr_of("pyspark.daemon")
