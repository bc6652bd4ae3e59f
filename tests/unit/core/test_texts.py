"""Texts that are cut say so."""

from streaming.core.texts import cut


def test_a_text_that_is_cut_says_so_and_has_the_length_at_most() -> None:
    assert cut("ten signs!", 10) == "ten signs!"
    assert cut("eleven sign", 10) == "eleven ..."
    assert len(cut("x" * 99, 10)) == 10
