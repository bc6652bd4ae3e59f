"""The command `dashboard`: what it refuses, each in one sentence, before it serves anything."""

import builtins
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from streaming.cli import main
from streaming.cli.dashboard.command import is_loopback
from tests.support.command_lines import ROOT

# Its key is encrypted.
KEYSTORE = str(ROOT / "tests" / "support" / "keystore.pem")


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """Returns what the command says before it ends with exit code 2."""
    with pytest.raises(SystemExit) as ended:
        main.main(["dashboard", "--bootstrap-servers", "127.0.0.1:1", *options])
    assert ended.value.code == 2
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.0.0.2", True),
        ("::1", True),
        ("localhost", True),
        ("192.0.2.1", False),
        ("::", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
def test_only_this_machine_reaches_a_loopback_address(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("host", ["192.0.2.1", "::", "[::]", "dashboard.example.org"])
def test_other_machines_need_a_token_and_tls(capsys: pytest.CaptureFixture[str], tmp_path: Path, host: str) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    for options in ((), ("--token-file", str(token)), ("--tls-certificate", KEYSTORE, "--tls-key", KEYSTORE)):
        said = refused(capsys, "--host", host, *options)
        assert "Other machines can reach" in said
        assert "--unprotected" in said


def test_a_certificate_and_its_key_need_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--tls-certificate", "--tls-key"):
        assert "need each other" in refused(capsys, option, KEYSTORE)


def test_a_key_that_needs_a_password_or_is_none_is_refused_without_a_question(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_text("no certificate")
    for file in (KEYSTORE, str(text)):
        said = refused(capsys, "--port", "0", "--tls-certificate", file, "--tls-key", file)
        assert "its key cannot be used" in said


def test_a_token_file_that_is_missing_or_short(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "cannot be read" in refused(capsys, "--token-file", str(tmp_path / "none"))
    short = tmp_path / "short"
    short.write_text("secret\n")
    said = refused(capsys, "--token-file", str(short))
    assert "fewer than 16 characters" in said
    assert "secret" not in said


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"cannot be served on 127.0.0.1:{port}" in refused(capsys, "--port", port)


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "jinja2", "markupsafe"])
def test_a_missing_extra_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    found = builtins.__import__

    def import_without(name: str, *others: Any, **named: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return found(name, *others, **named)

    for name in [name for name in sys.modules if name.startswith("streaming.cli.dashboard.")]:
        if not name.endswith(".command"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", import_without)
    said = refused(capsys)
    assert f"The dashboard needs the package {package}." in said
    assert "pip install 'queue-activation[dashboard]'" in said
