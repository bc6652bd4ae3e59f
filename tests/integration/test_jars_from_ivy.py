import socket
import time
from pathlib import Path

import pytest

from streaming.system.jars import JarsUnreachableError, spark_jars
from tests.support.waiting import slowness

SETTINGS = """<ivysettings>
  <settings defaultResolver="mirror"/>
  <resolvers><ibiblio name="mirror" m2compatible="true" root="http://127.0.0.1:{port}/"/></resolvers>
</ivysettings>
"""


def test_an_unreachable_mirror_is_one_clear_error(
    java_and_jars: None,  # noqa: ARG001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = tmp_path / "settings.xml"
    monkeypatch.setenv("QUEUE_ACTIVATION_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("QUEUE_ACTIVATION_IVY_SETTINGS", str(settings))
    # Bound but not listening: no other program can take the port, and connections are refused.
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        settings.write_text(SETTINGS.format(port=closed.getsockname()[1]))
        began_s = time.monotonic()
        with pytest.raises(JarsUnreachableError, match=r"settings\.xml: Server access error at url .*refused"):
            spark_jars()
        assert time.monotonic() - began_s < 60 * slowness()
