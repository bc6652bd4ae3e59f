"""Numbers for people."""

from streaming.core.numbers import plural


def test_a_noun_has_the_form_that_its_number_needs() -> None:
    found = [plural(count, "partition") for count in (0, 1, 2, 1_000)]
    assert found == ["0 partitions", "1 partition", "2 partitions", "1,000 partitions"]
