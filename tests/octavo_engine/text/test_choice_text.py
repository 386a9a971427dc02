"""One choice: text, counts and log-probabilities stay together."""

from __future__ import annotations

from octavo_engine.requests import TokenLogprob
from octavo_engine.text.choice_text import ChoiceText, new_choice_text
from tests.octavo_engine.text.small_tokenizers import FIRST_BYTE_ID, byte_level_tokenizer, text_tokenizer

TOKENIZER = text_tokenizer(byte_level_tokenizer())


def choice(**options: object) -> ChoiceText:
    return new_choice_text(TOKENIZER.decode, silent_ids=TOKENIZER.special_ids, **options)  # type: ignore[arg-type]


def push(text: ChoiceText, data: bytes) -> None:
    for byte in data:
        token_id = FIRST_BYTE_ID + byte
        text.push(token_id, TokenLogprob(token_id=token_id, logprob=-1.0))


def test_choice_counts_tokens_up_to_the_one_that_completes_a_stop_string() -> None:
    text = choice(stops=["b"])
    push(text, b"abcd")
    text.finish()
    assert text.stopped
    assert text.num_tokens == 2
    assert text.take()[0] == "a"


def test_choice_drops_log_probabilities_of_what_a_stop_string_cut_off() -> None:
    text = choice(stops=["cd"])
    push(text, b"abcd")
    shown, logprobs = text.take()
    assert shown == "ab"
    assert [entry.text_offset for entry in logprobs] == [0, 1]


def test_choice_hands_over_a_held_token_with_its_text() -> None:
    text = choice(stops=["bx"])
    push(text, b"ab")
    assert [len(part) for part in text.take()] == [1, 1]
    push(text, b"c")
    assert [len(part) for part in text.take()] == [2, 2]


def test_choice_hands_over_every_log_probability_when_it_ends() -> None:
    text = choice()
    push(text, "é".encode()[:1])
    text.push(2, TokenLogprob(token_id=2, logprob=-1.0), hidden=True)
    text.finish()
    shown, logprobs = text.take()
    assert shown == "�"
    assert len(logprobs) == 2


def test_choice_ignores_stop_strings_before_min_tokens() -> None:
    text = choice(stops=["a"], min_tokens=3)
    push(text, b"aaXa")
    assert text.take()[0] == "aaX"
    assert text.stopped
