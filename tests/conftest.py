"""Fixtures and settings that the tests share."""

import os
from collections.abc import Iterator

import pytest

from streaming.errors import UserError
from streaming.system.jars import JarsUnreachableError, broker_jars, spark_jars
from streaming.system.java import find_java
from tests.support.shared_broker import SharedBroker, shared_broker
from tests.support.spark_application import SparkApplication

# Most monitors and brokers here live for seconds. Java's second compiler takes a third of a monitor's and half of a
# broker's CPU time in these seconds, and its code is not used yet. Spark compiles its plans into Java classes, which
# takes a sixth of a start. Without that, it interprets the same plans. The acceptance tests have the defaults.
_FEW_BATCHES = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"-XX:TieredStopAtLevel=1 {_FEW_BATCHES}")
os.environ.setdefault("KAFKA_JVM_PERFORMANCE_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def needed_service_is_missing(error: Exception) -> None:
    """Skips the test on a laptop; fails it in CI (CI=true), where no service may be missing."""
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"this test needs a service that CI must have: {error}", pytrace=False)
    pytest.skip(f"this test needs a service that is missing: {error}")


@pytest.fixture(scope="session")
def java_and_jars() -> None:
    """Finds Java and the jars for Spark and Kafka. Wrong jars fail the test everywhere, also on a laptop."""
    try:
        find_java()
    except UserError as error:
        needed_service_is_missing(error)
    try:
        spark_jars()
        broker_jars()
    except JarsUnreachableError as error:
        needed_service_is_missing(error)


@pytest.fixture(scope="session")
def broker(
    java_and_jars: None,  # noqa: ARG001
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SharedBroker]:
    """One broker for all tests, those of other workers too. Each test uses topics of its own."""
    folder = tmp_path_factory.getbasetemp()
    with shared_broker(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) as running:
        yield running


@pytest.fixture(scope="session")
def spark(java_and_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkApplication]:  # noqa: ARG001
    """One Spark application for all tests of a worker. It starts with the first monitor or router that needs it."""
    with SparkApplication(tmp_path_factory.mktemp("spark")) as application:
        yield application
