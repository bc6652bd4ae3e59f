"""The metrics that the files for Prometheus and Grafana name, and those that docs/metrics.md describes."""

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.support.command_lines import ROOT

RULES = ROOT / "monitoring" / "alerts.yml"
DASHBOARD = ROOT / "monitoring" / "grafana-dashboard.json"
DOCUMENT = ROOT / "docs" / "metrics.md"

# The beginnings of the names of the metrics of other programs than the monitor.
_OTHERS = ("queue_activation_router_", "queue_activation_transport_", "queue_activation_observer_")

# The words of PromQL that the files use. All other words in an expression are metrics.
_WORDS = frozenset(("absent", "and", "deriv", "histogram_quantile", "increase", "max", "or", "rate", "sum"))
# Label selectors and ranges. A range may be Grafana's own variable.
_SELECTORS = re.compile(r"\{[^}]*\}|\[[^\]]*\]")
_GROUPINGS = re.compile(r"\bby\s*\([^)]*\)")


def metrics_in(expression: str) -> set[str]:
    """Returns the metrics that an expression of PromQL names."""
    bare = _GROUPINGS.sub(" ", _SELECTORS.sub(" ", expression))
    return set(re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*", bare)) - _WORDS


def rules() -> list[dict[str, Any]]:
    """Returns the alerting rules."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def metrics_of_rules() -> set[str]:
    """Returns the metrics that the alerting rules name."""
    return set().union(*(metrics_in(rule["expr"]) for rule in rules()))


def metrics_of_dashboard() -> set[str]:
    """Returns the metrics that the dashboard's panels name."""
    return set().union(*map(metrics_in, _expressions(json.loads(DASHBOARD.read_text()))))


def _expressions(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if "expr" in part:
            yield part["expr"]
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from _expressions(each)


def documented_metrics() -> set[str]:
    """Returns the metrics of the monitor that have a row in the document's table."""
    return {name for name in _documented() if not name.startswith(_OTHERS)}


def documented_transport_metrics() -> set[str]:
    """Returns the metrics of a transport that have a row in the document's table."""
    return {name for name in _documented() if name.startswith(_OTHERS[1])}


def documented_observer_metrics() -> set[str]:
    """Returns the metrics of an observer that have a row in the document's table."""
    return {name for name in _documented() if name.startswith(_OTHERS[2])}


def documented_router_metrics() -> set[str]:
    """Returns the metrics of a router that have a row in the document's table."""
    return {name for name in _documented() if name.startswith(_OTHERS[0])}


def metrics_of_all_programs() -> set[str]:
    """Returns all metrics that have a row in the document's tables."""
    return _documented()


def _documented() -> set[str]:
    first_cells = re.findall(r"^\| (`queue_activation_.*?) \|", DOCUMENT.read_text(), re.MULTILINE)
    return {name for cell in first_cells for name in re.findall(r"`(queue_activation_\w+)`", cell)}
