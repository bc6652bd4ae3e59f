"""Fixtures of the acceptance tests: Spark and Java run as a user has them."""

import pytest


@pytest.fixture(autouse=True)
def _no_settings_for_short_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_SUBMIT_OPTS", "KAFKA_JVM_PERFORMANCE_OPTS"):
        monkeypatch.delenv(name, raising=False)
