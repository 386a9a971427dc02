"""Grammars over small tokenizers: which tokens may follow, and when the text may end."""

from __future__ import annotations

import pytest

from octavo_engine.text.grammar import (
    Grammar,
    GrammarCompiler,
    GrammarInvalid,
    choice_body,
    json_body,
    regex_body,
)
from octavo_engine.text.tokenizer import TextTokenizer
from tests.octavo_engine.text.small_tokenizers import (
    FIRST_BYTE_ID,
    byte_level_tokenizer,
    sentencepiece_tokenizer,
    text_tokenizer,
)

EOS = 2
ENDS = frozenset({EOS, 0})
TOKENIZER = text_tokenizer(byte_level_tokenizer([b'{"', b"yes", "é".encode()]))


def compiler(tokenizer: TextTokenizer = TOKENIZER, ends: frozenset[int] = ENDS) -> GrammarCompiler:
    return GrammarCompiler(tokenizer, vocab_size=tokenizer.vocab_size, eos_token_ids=ends)


def follows(grammar: Grammar, ids: list[int]) -> bool:
    """Whether the grammar allows these ids one after another and then the end."""
    constraint = grammar.new_constraint()
    output: list[int] = []
    for token_id in [*ids, EOS]:
        allowed = constraint.allowed_after(output)
        if allowed is None or not allowed[token_id]:
            return False
        output.append(token_id)
    return True


def takes(lark: str, text: str) -> bool:
    return follows(compiler().compile(lark), TOKENIZER.encode(text))


@pytest.mark.parametrize(
    ("body", "text", "taken"),
    [
        pytest.param(regex_body("a/b|c"), "a/b", True, id="slash"),
        pytest.param(regex_body(chr(92) + "/"), "/", True, id="escaped slash"),
        pytest.param(regex_body("a" + chr(10)), "a\n", True, id="line break"),
        pytest.param(regex_body("ab+"), "a", False, id="incomplete"),
        pytest.param(choice_body(["yes", "yes!"]), "yes!", True, id="longer choice"),
        pytest.param(choice_body(['é"\\']), 'é"\\', True, id="choice with escapes"),
        pytest.param(json_body({"type": "object"}), '{"é": [1, null]}', True, id="object"),
        pytest.param(json_body({"type": "object"}), "[1]", False, id="no object"),
        pytest.param(json_body(True), "[1]", True, id="any json"),
        pytest.param(json_body({}), "[" + " " * 65 + "1]", False, id="space without end"),
        pytest.param(json_body({"oneOf": [{"type": "null"}, {"type": "integer"}]}), "5", True, id="one of"),
    ],
)
def test_grammar_takes_whole_texts_only(body: str, text: str, taken: bool) -> None:
    assert takes(f"start: {body}", text) is taken


def test_end_is_allowed_only_where_the_grammar_accepts() -> None:
    constraint = compiler().compile("start: /ab?/").new_constraint()
    before, after_a = constraint.allowed_after([]), constraint.allowed_after([FIRST_BYTE_ID + ord("a")])
    assert before is not None
    assert after_a is not None
    assert not any(before[token_id] for token_id in ENDS)
    assert all(after_a[token_id] for token_id in ENDS)


def test_sequences_of_one_grammar_do_not_share_state() -> None:
    grammar = compiler().compile("start: /ab|cd/")
    first, second = grammar.new_constraint(), grammar.new_constraint()
    first.allowed_after([FIRST_BYTE_ID + ord("a")])
    allowed = second.allowed_after([])
    assert allowed is not None
    assert allowed[FIRST_BYTE_ID + ord("c")]


def test_sentencepiece_tokenizer_follows_a_grammar() -> None:
    tokenizer = text_tokenizer(sentencepiece_tokenizer(["▁", "a", "b", "ab", "▁a"]))
    ids = [tokenizer.encode("ab")[-1], *tokenizer.encode("é")[-2:]]
    assert follows(compiler(tokenizer).compile("start: /.*é/"), ids)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param("missing", "missing", id="unknown name"),
        pytest.param(regex_body("(?=a)b"), "look-around", id="lookahead"),
        pytest.param(json_body({"type": "nonsense"}), "nonsense", id="bad type"),
        pytest.param(json_body(False), "not", id="nothing is valid"),
        pytest.param("/" + "a" * 300_000 + "/", "at most", id="too large"),
    ],
)
def test_grammar_that_cannot_be_compiled_says_why(body: str, said: str) -> None:
    with pytest.raises(GrammarInvalid, match=said) as caught:
        compiler().compile(f"start: {body}")
    assert "<state>" not in str(caught.value)


def test_model_without_end_of_sequence_has_no_grammars() -> None:
    with pytest.raises(GrammarInvalid, match="end-of-sequence"):
        compiler(ends=frozenset()).compile('start: "a"')
