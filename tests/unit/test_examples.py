"""The programs of examples/services end at Ctrl-C without a traceback, and close their clients before."""

import runpy
import sys
from typing import Any, ClassVar

import pytest

from producers import reader, services
from tests.support.command_lines import ROOT

FOLDER = ROOT / "examples" / "services"


class Client:
    """A reader or a client of services, at whose first RECEIVE the user presses Ctrl-C."""

    closed: ClassVar[list[str]] = []
    has_found_nothing = False

    def __init__(self, *_: Any, **__: Any) -> None:
        """Takes what the real ones take."""

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.closed.append("" if kind is None else kind.__name__)

    def begin(self, *_: Any, **__: Any) -> "Client":
        return self

    def reader(self, _service: str) -> "Client":
        return self

    def send(self, _body: bytes) -> None:
        """Sends nothing."""

    def receive(self, **_: Any) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.py")))
def test_an_example_ends_at_ctrl_c_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any, name: str
) -> None:
    addresses = tmp_path / "addresses.json"
    addresses.write_text("{}")
    monkeypatch.setattr(services, "ServiceClient", Client)
    monkeypatch.setattr(reader, "QueueReader", Client)
    monkeypatch.setattr(Client, "closed", [])
    monkeypatch.setattr(sys, "argv", [name, *([str(addresses)] if name == "configuration.py" else [])])
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    assert set(Client.closed) == {"KeyboardInterrupt"}
    assert capsys.readouterr() == ("", "")
