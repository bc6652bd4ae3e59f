"""Fixtures of the acceptance tests: Spark and Java run as a user has them, except where a test says otherwise."""

import pytest


@pytest.fixture(autouse=True)
def _no_settings_for_short_lives(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("short_lived_java"):
        return
    for name in ("SPARK_SUBMIT_OPTS", "KAFKA_JVM_PERFORMANCE_OPTS"):
        monkeypatch.delenv(name, raising=False)
