"""A broker with users: SASL/SCRAM over TLS, and only the rights that ACLs grant.

Each run has new passwords, so that a test can search all files and processes for them.
"""

import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from streaming.kafka import client_properties
from streaming.kafka.clients import Cluster
from streaming.system.embedded_broker import BrokerSecurity, EmbeddedBroker
from streaming.system.java import find_java
from tests.support.waiting import wait_until

_MECHANISM = "SCRAM-SHA-512"
_LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
SUPER_USER = "root"
REQUEST_TIMEOUT_S = 10.0


@dataclass
class SecuredBroker:
    """A running secured broker, its users, and their client files.

    Attributes:
        bootstrap_servers: `HOST:PORT`.
        folder: The folder for client files.
        authority: The certificate that clients must trust, as PEM.
        passwords: User -> password.
    """

    bootstrap_servers: str
    folder: Path
    authority: Path
    passwords: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.admin = self.cluster(SUPER_USER).admin_client()

    def add_user(self, name: str) -> None:
        """Creates a user with its own password and without rights."""
        self.passwords[name] = secrets.token_urlsafe(16)
        upsertion = UserScramCredentialUpsertion(
            name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), self.passwords[name].encode()
        )
        self.admin.alter_user_scram_credentials([upsertion])[name].result(REQUEST_TIMEOUT_S)

    def allow(self, acls: list[AclBinding]) -> None:
        """Adds ACLs, and waits until they are in force."""
        for future in self.admin.create_acls(acls, request_timeout=REQUEST_TIMEOUT_S).values():
            future.result()
        wait_until(lambda: all(map(self._is_in_force, acls)), REQUEST_TIMEOUT_S, "the ACLs to be in force")

    def forbid(self, acl: AclBinding) -> None:
        """Removes an ACL, which must exist, and waits until it is no longer in force."""
        (future,) = self.admin.delete_acls([_filter(acl)], request_timeout=REQUEST_TIMEOUT_S).values()
        assert len(future.result()) == 1, acl
        wait_until(lambda: not self._is_in_force(acl), REQUEST_TIMEOUT_S, "the ACL to be gone")

    def _is_in_force(self, acl: AclBinding) -> bool:
        # The broker's answer comes from its authorizer.
        return bool(self.admin.describe_acls(_filter(acl), request_timeout=REQUEST_TIMEOUT_S).result())

    def client_file(self, name: str, *, password: str | None = None, authority: Path | None = None) -> Path:
        """Writes a user's file for --kafka-config, as docs/security.md shows it; returns its path."""
        path = self.folder / f"{name}-{secrets.token_hex(4)}.properties"
        path.touch(mode=0o600)
        properties = properties_of(name, password or self.passwords[name], authority or self.authority)
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return path

    def cluster(self, name: str) -> Cluster:
        """Returns the connection of a user, for clients in this process."""
        return Cluster(
            self.bootstrap_servers, client_properties.for_librdkafka(client_properties.load(self.client_file(name)))
        )


def properties_of(name: str, password: str, authority: Path) -> dict[str, str]:
    """Returns the properties that a client needs, with the names of the Java client."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": _MECHANISM,
        "sasl.jaas.config": f'{_LOGIN_MODULE} required username="{name}" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
    }


def _filter(acl: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        acl.restype, acl.name, acl.resource_pattern_type, acl.principal, acl.host, acl.operation, acl.permission_type
    )


@contextmanager
def secured_broker(folder: Path) -> Iterator[SecuredBroker]:
    """Runs a secured broker, with its files in the folder."""
    store, authority = make_certificate(folder, "broker")
    password = secrets.token_urlsafe(16)
    settings = {
        **properties_of(SUPER_USER, password, authority),
        "sasl.enabled.mechanisms": _MECHANISM,
        "sasl.mechanism.inter.broker.protocol": _MECHANISM,
        f"listener.name.sasl_ssl.{_MECHANISM.lower()}.sasl.jaas.config": (
            f'{_LOGIN_MODULE} required username="{SUPER_USER}" password="{password}";'
        ),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": _STORE_PASSWORD,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # The broker connects to its own controller as ANONYMOUS, by a port that is not announced to clients.
        "super.users": f"User:{SUPER_USER};User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "false",
    }
    del settings["security.protocol"], settings["sasl.mechanism"], settings["sasl.jaas.config"]
    user = ["--add-scram", f"{_MECHANISM}=[name={SUPER_USER},password={password}]"]
    data = folder / "broker"
    with EmbeddedBroker(data_dir=data, security=BrokerSecurity("SASL_SSL", settings, user)) as broker:
        yield SecuredBroker(broker.bootstrap_servers, folder, authority, {SUPER_USER: password})


_STORE_PASSWORD = "of the tests' key stores"  # noqa: S105  (of a file that lives as long as the test)


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Makes a key with a self-signed certificate; returns a PKCS12 store of both, and the certificate alone as PEM."""
    store, certificate = folder / f"{name}.p12", folder / f"{name}.pem"
    keytool = [str(find_java().with_name("keytool")), "-keystore", str(store), "-storepass", _STORE_PASSWORD]
    key = ["-genkeypair", "-alias", name, "-keyalg", "EC", "-storetype", "PKCS12", "-validity", "2"]
    names = ["-dname", f"CN={name}", "-ext", "san=ip:127.0.0.1,dns:localhost"]
    subprocess.run([*keytool, *key, *names], check=True, capture_output=True)
    subprocess.run(
        [*keytool, "-exportcert", "-alias", name, "-rfc", "-file", str(certificate)], check=True, capture_output=True
    )
    return store, certificate
