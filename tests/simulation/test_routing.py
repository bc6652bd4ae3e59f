"""Random routing cases: each decision must be one that an independent implementation allows."""

import json
import random
from collections import Counter
from functools import partial
from typing import Any

import msgspec
import pytest

from streaming.core.routing.conversation import Decision, Question
from streaming.core.routing.definitions import Definitions
from streaming.core.routing.explanation import Explanation
from streaming.core.routing.resolution import resolve
from streaming.wire.service_definitions import Case, DefinitionsFile
from tests.support.routing_cases import random_case, random_definitions, random_question, random_semantics
from tests.support.routing_oracle import allowed, network_address
from tests.support.seeds import seeds

CASES = 100_000
CASES_OF_ONE_INSTANCE = 25
LEAST = 100
OUTCOMES = {"LOCAL", "REMOTE", "DELAYED", "DROPPED"}
RULES = {f"rule {number}" for number in range(1, 8)}
NUMBERS = {9744, 9750, 9770, 9791, 9792, 9795, 9796, 11285}


def plain(decision: Decision) -> dict[str, Any]:
    """Returns a decision in the oracle's form."""
    service = decision.service
    return {
        "outcome": decision.outcome.value,
        "rule": decision.rule,
        "route": decision.route,
        "database": service and service.database,
        "service": service and service.name,
        "queue": service and service.queue,
        "address": decision.address and network_address(decision.address),
        "mirror_address": decision.mirror_address and network_address(decision.mirror_address),
        "number": decision.number,
    }


def comparable(result: dict[str, Any]) -> dict[str, Any]:
    """Returns a result of the oracle with addresses that compare as network addresses."""
    addresses = {name: result[name] and network_address(result[name]) for name in ("address", "mirror_address")}
    return result | addresses


@pytest.mark.parametrize("seed", seeds("ROUTING_SEED", []))
def test_every_decision_is_one_that_the_oracle_allows(seed: int) -> None:
    print(f"ROUTING_SEED={seed}")  # noqa: T201
    rng = random.Random(seed)  # noqa: S311
    seen: Counter[Any] = Counter()
    for _ in range(CASES // CASES_OF_ONE_INSTANCE):
        raw = random_definitions(rng)
        file = msgspec.convert(raw, DefinitionsFile)
        instance = file.instance.instance()
        at: dict[int, Definitions] = {}
        for number in range(CASES_OF_ONE_INSTANCE):
            case, question, semantics = random_case(rng, raw), random_question(rng), random_semantics(rng)
            read = msgspec.convert(case, Case)
            at_ms = read.at_ms(0)
            if at_ms not in at:
                at[at_ms] = file.definitions()
                at[at_ms].advance(at_ms)
            decide = partial(
                resolve,
                at[at_ms],
                instance,
                read.conversation.conversation(),
                questions=dict.fromkeys(at[at_ms].databases, Question[question]),
                is_literal=semantics == "literal",
            )
            found = decide()
            if number == 0:
                explanation = Explanation()
                assert decide(explanation=explanation) == found, "the explanation changes the decision"
                assert explanation.steps
            options = [comparable(each) for each in allowed(raw, case, question=question, semantics=semantics)]
            context = json.dumps({"definitions": raw, "case": case, "question": question, "semantics": semantics})
            assert plain(found) in options, f"{plain(found)}\nis not allowed, but\n{options}\nfor\n{context}"
            seen.update([found.outcome.value, found.number, f"rule {found.rule}"])
    assert all(seen[each] >= LEAST for each in OUTCOMES | NUMBERS | RULES), seen
