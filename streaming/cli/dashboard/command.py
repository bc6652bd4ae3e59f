"""The command `queue-activation dashboard`."""

from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from streaming.cli.dashboard.address import DEFAULT_PORT, Address
from streaming.cli.options import Place
from streaming.errors import UserError
from streaming.system import hints, stop_signals
from streaming.system.options import option


@stop_signals.orderly("dashboard")
def dashboard(
    host: Annotated[
        str, option("--host", "Address to serve on. An address for other machines needs a token and TLS.")
    ] = "127.0.0.1",
    port: Annotated[int, option("--port", "Port to serve on; 0 picks a free one.", min=0, max=65535)] = DEFAULT_PORT,
    token_file: Annotated[
        Path | None, option("--token-file", "File with the token that readers must enter.", dir_okay=False)
    ] = None,
    tls_certificate: Annotated[
        Path | None, option("--tls-certificate", "File with the certificate and its chain, PEM.", dir_okay=False)
    ] = None,
    tls_key: Annotated[
        Path | None, option("--tls-key", "File with the certificate's key, PEM.", dir_okay=False)
    ] = None,
    unprotected: Annotated[
        bool,
        option(
            "--unprotected",
            "Serve other machines without token and TLS: in a container whose port is published on this machine only, "
            "or behind a proxy that protects it.",
        ),
    ] = False,
    *,
    place: Place,
) -> None:
    """Serve a web page that shows what happens and why: queues, readers, activations. Read-only.

    Prints `dashboard ready ADDRESS`. Ctrl-C or SIGTERM stops it. It needs the packages of the extra `dashboard`:
    pip install 'queue-activation[dashboard]'.
    """
    try:
        from streaming.cli.dashboard.web_server import serve
    except ModuleNotFoundError as error:
        raise UserError(
            f"The dashboard needs the package {error.name}. Install it: pip install 'queue-activation[dashboard]'"
        ) from None
    if (tls_certificate is None) != (tls_key is None):
        raise UserError(f"{hints.option('--tls-certificate')} and {hints.option('--tls-key')} need each other.")
    address = Address(host.strip("[]"), port, _token(token_file), tls_certificate, tls_key, is_open=unprotected)
    _check(address)
    serve(place.cluster(), place.topics(), address)


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check(address: Address) -> None:
    if is_loopback(address.host) or address.is_open or (address.token and address.certificate):
        return
    raise UserError(
        f"Other machines can reach {address.host}, so readers must know a token, and TLS must protect it: set "
        f"{hints.option('--token-file')}, {hints.option('--tls-certificate')} and {hints.option('--tls-key')}. If a "
        f"proxy does both, set {hints.option('--unprotected')}."
    )


def _token(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        token = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UserError(f"The token file {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"The token file {file} cannot be read: {error}") from None
    if len(token) < 16:
        raise UserError(f"The token in {file} has fewer than 16 characters. Make one: openssl rand -hex 32")
    return token
