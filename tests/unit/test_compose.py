"""docker-compose.yml and the Dockerfile, as far as they can be tested without a Docker engine."""

import fnmatch
import re
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
import yaml

from streaming.daemons.activator.config import Config
from streaming.system import toml_file
from tests.support.command_lines import COMMAND, ROOT, VARIABLE_PREFIX, all_variables, parse, variables_of

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
IMAGE = "queue-activation"
OWN = sorted(name for name, service in SERVICES.items() if service["image"] == IMAGE)
# The commands of the programs that `run` runs, which read the environment too.
PARTS = ("monitor", "router", "transport", "observe", "activator")
# The keys that a service of this file may have, because Docker Compose's own checks are not available.
SERVICE_KEYS = frozenset(("build", "command", "depends_on", "environment", "healthcheck", "hostname", "image")) | {
    *("init", "ports", "pull_policy", "stop_grace_period", "volumes")
}
CONDITIONS = frozenset(("service_started", "service_healthy", "service_completed_successfully"))


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} (.+)$", DOCKERFILE, re.MULTILINE)


def is_ignored(path: str) -> bool:
    """Returns whether .dockerignore keeps a path of the top level out of the build; the last match decides."""
    ignored = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        if line and not line.startswith("#") and fnmatch.fnmatch(path, pattern):
            ignored = not line.startswith("!")
    return ignored


def test_the_parts_are_services_of_their_own() -> None:
    assert SERVICES.keys() == {"kafka", "topics", "run", "dashboard", "workload"}
    assert OWN == ["dashboard", "run", "topics", "workload"]


def test_the_image_is_built_once_and_never_pulled() -> None:
    (builder,) = [name for name in OWN if "build" in SERVICES[name]]

    assert builder == "topics"
    assert (ROOT / SERVICES[builder]["build"]["context"] / "Dockerfile").is_file()
    assert {name: SERVICES[name]["pull_policy"] for name in OWN} == dict.fromkeys(OWN, "never") | {builder: "build"}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_only_keys_that_compose_knows(name: str) -> None:
    service = SERVICES[name]

    assert service.keys() <= SERVICE_KEYS
    assert "image" in service
    assert all(isinstance(value, str) for value in service.get("environment", {}).values())
    assert service.get("healthcheck", {}).keys() <= {"test", "interval", "timeout", "retries", "start_period"}


@pytest.mark.parametrize("name", OWN)
def test_the_command_is_one_of_the_command_line(name: str) -> None:
    service = SERVICES[name]
    command, *_ = service["command"]
    ours = {variable: value for variable, value in service["environment"].items() if variable.startswith("QUEUE_")}

    read = {one: variables_of(one) for one in (command, *(PARTS if command == "run" else ()))}
    assert ours.keys() <= set().union(*read.values()), "an environment variable that no command reads"
    settings = parse(service["command"], {name: ours[name] for name in ours.keys() & read[command]})

    assert settings["bootstrap_servers"] == "kafka:19092"
    if settings.get("file"):
        check_config(service, settings["file"])


def check_config(service: dict[str, Any], config: Path) -> None:
    """Checks that the config file exists where the service mounts it, and that its commands are valid."""
    (mount,) = [volume.split(":") for volume in service["volumes"] if str(config).startswith(volume.split(":")[1])]
    path = ROOT / mount[0] / config.relative_to(mount[1])
    for entry in toml_file.load(path, Config).programs:
        program, *arguments = entry.command_for("q")
        assert program == COMMAND
        assert parse(arguments)["queue"] == "q"


def test_a_wrong_command_would_be_noticed() -> None:
    with pytest.raises(LookupError, match="watch-groups"):
        parse(["watch-groups"])
    with pytest.raises(Exception, match="No such option"):
        parse(["monitor", "--partitions", "2"])
    with pytest.raises(Exception, match="is not a duration"):
        parse(["monitor"], {"QUEUE_ACTIVATION_QUIET_WINDOW": "soon"})
    assert "QUEUE_ACTIVATION_PARTITIONS" not in variables_of("monitor")


@pytest.mark.parametrize("name", SERVICES)
def test_dependencies_exist_and_can_be_met(name: str) -> None:
    for other, dependency in SERVICES[name].get("depends_on", {}).items():
        condition = dependency["condition"]
        assert condition in CONDITIONS
        assert condition != "service_healthy" or "healthcheck" in SERVICES[other]
        assert condition != "service_completed_successfully" or "restart" not in SERVICES[other]


def test_dependencies_have_no_cycle() -> None:
    order = TopologicalSorter({name: service.get("depends_on", {}) for name, service in SERVICES.items()})

    assert set(order.static_order()) == SERVICES.keys()  # raises for a cycle; an unknown name is not a service


def test_named_volumes_are_declared_and_used() -> None:
    mounted = {volume.partition(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    used = {volume for volume in mounted if not volume.startswith("./")}

    assert used == COMPOSE["volumes"].keys()


def test_the_checkpoints_are_on_a_volume() -> None:
    service = SERVICES["run"]
    checkpoints = service["environment"]["QUEUE_ACTIVATION_CHECKPOINTS"]

    assert checkpoints in [volume.partition(":")[2] for volume in service["volumes"]]
    # The folder must belong to the image's user before a volume is mounted on it.
    assert checkpoints in DOCKERFILE


def test_the_health_check_asks_the_port_of_the_metrics_which_is_published() -> None:
    service = SERVICES["run"]
    port = service["environment"]["QUEUE_ACTIVATION_METRICS_PORT"]

    assert f"http://127.0.0.1:{port}/readyz" in service["healthcheck"]["test"][-1]
    assert service["environment"]["QUEUE_ACTIVATION_METRICS_HOST"] == "0.0.0.0"  # noqa: S104  (in a container)
    assert service["ports"] == [f"127.0.0.1:{port}:{port}"]


def test_no_port_of_this_machine_is_published_twice() -> None:
    published = [port.rpartition(":")[0] for service in SERVICES.values() for port in service.get("ports", [])]

    assert len(published) == len({*published})


def test_kafka_listens_where_the_others_look() -> None:
    environment = SERVICES["kafka"]["environment"]
    listeners = dict(address.split("://") for address in environment["KAFKA_LISTENERS"].split(","))
    advertised = dict(address.split("://") for address in environment["KAFKA_ADVERTISED_LISTENERS"].split(","))
    protocols = dict(pair.split(":") for pair in environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))

    assert listeners.keys() == protocols.keys()
    assert listeners.keys() - advertised.keys() == {environment["KAFKA_CONTROLLER_LISTENER_NAMES"]}
    assert advertised["SERVICES"] == "kafka:19092"
    assert environment["KAFKA_INTER_BROKER_LISTENER_NAME"] in advertised
    assert SERVICES["kafka"]["ports"] == ["127.0.0.1:9092:9092"]
    assert advertised["HOST"] == "localhost:9092"


def test_kafka_is_the_version_of_the_embedded_broker() -> None:
    version = re.search(r'name="kafka_2\.13" rev="([^"]+)"', (ROOT / "ivy.xml").read_text())

    assert version is not None
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{version[1]}"


def test_what_the_dockerfile_copies_is_there() -> None:
    lines = [line for line in instructions("COPY") if not line.startswith("--from=build ")]
    copied = [source for line in lines for source in line.split()[:-1]]

    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert not is_ignored(source), source
    packages = {package.partition(".")[0] for package in PYPROJECT["tool"]["setuptools"]["packages"]}
    assert packages | {"pyproject.toml", "setup.py", "constraints.txt", PYPROJECT["project"]["readme"]} <= set(copied)
    # They are links.
    for link in ("system/ivy.xml", "docs"):
        assert (ROOT / "streaming" / link).resolve().relative_to(ROOT).name in copied


def test_only_what_is_copied_is_sent_to_the_builder() -> None:
    assert [is_ignored(name) for name in (".git", ".venv", "tests", "checkpoints", "build")] == [True] * 5


def test_the_image_runs_the_command_as_an_ordinary_user() -> None:
    assert instructions("ENTRYPOINT") == [f'["{COMMAND}"]']
    assert COMMAND in PYPROJECT["project"]["scripts"]
    assert instructions("USER") not in ([], ["root"])
    # The same version of Python builds and runs, because compiled modules work with no other.
    assert instructions("FROM") == ["python:3.12-bookworm AS build", "python:3.12-slim-bookworm"]
    assert set(re.findall(rf"{VARIABLE_PREFIX}[A-Z_]+", DOCKERFILE)) <= all_variables()
