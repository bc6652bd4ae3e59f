"""Whether topics are still those whose offsets a checkpoint holds."""

from streaming.topic_watch import replaced_topics

KNOWN = {"queue-arrivals": "id-1", "queue-receives": "id-2"}


def test_the_same_topics_and_further_ones_are_no_problem() -> None:
    assert replaced_topics(KNOWN, KNOWN | {"queue-commands": "id-3"}) is None


def test_a_checkpoint_that_knows_no_ids_has_no_problem() -> None:
    assert replaced_topics({}, KNOWN) is None


def test_a_topic_that_was_created_again_or_is_gone_is_named() -> None:
    again = replaced_topics(KNOWN, KNOWN | {"queue-receives": "id-9"})
    gone = replaced_topics(KNOWN, {"queue-arrivals": "id-1"})
    assert again == gone
    assert again is not None
    assert "created again: queue-receives." in again
    assert "another --checkpoint-location" in again
