"""The place where the dashboard is served; without the packages that only serving needs."""

from dataclasses import dataclass
from pathlib import Path

DEFAULT_PORT = 8466


@dataclass(frozen=True)
class Address:
    """The place where the dashboard is served, and those whom it serves.

    Attributes:
        host: The address of this machine.
        port: The port; 0: a free one.
        token: What readers must know; None: nothing.
        certificate: The file with the certificate; None: without TLS.
        key: The file with its key.
        is_open: Whether other machines are served without token and TLS.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    token: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    is_open: bool = False

    @property
    def is_secure(self) -> bool:
        """Returns whether it is served by TLS."""
        return self.certificate is not None

    def url(self, port: int) -> str:
        """Returns the address for a browser."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.is_secure else ''}://{host}:{port}/"
