"""The address of the dashboard. This module needs no package of the extra `dashboard`."""

from dataclasses import dataclass
from pathlib import Path

DEFAULT_PORT = 8466


@dataclass(frozen=True)
class Address:
    """The address of the dashboard, and its protection.

    Attributes:
        host: The address of this machine.
        port: The port; 0: any free port.
        token: The token that users must know; None: no token.
        certificate: The file with the certificate; None: no TLS.
        key: The file with the certificate's key.
        is_open: Whether other machines need neither token nor TLS.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    token: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    is_open: bool = False

    @property
    def is_secure(self) -> bool:
        """Returns whether TLS protects the dashboard."""
        return self.certificate is not None

    def url(self, port: int) -> str:
        """Returns the address for a browser, given the port in use."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.is_secure else ''}://{host}:{port}/"
