"""Lists of names in sentences."""

from streaming.system.name_lists import listed


def test_a_long_list_names_the_first_ones_and_counts_the_others() -> None:
    names = [f"q{number}" for number in range(1_010)]
    assert listed(names[:2]) == "q0, q1"
    assert listed(names[:10]) == ", ".join(names[:10])
    assert listed(names) == f"{', '.join(names[:10])} and 1,000 more"
