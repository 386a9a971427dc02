"""Grammars that an answer must follow: JSON schemas, regular expressions, choices, Lark grammars.

`llguidance` compiles a grammar against the model's tokenizer and tells after each token which ones may
follow. Everything is written as Lark, its most general form, so that grammars can be put together.
Source: https://github.com/guidance-ai/llguidance, docs/syntax.md.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from llguidance import LLMatcher, LLTokenizer

from octavo.errors import OctavoError
from octavo_engine.text.tokenizer import TextTokenizer

MAX_GRAMMAR_CHARS: Final = 256 * 1024
"""Larger ones would compile for seconds."""

JSON_OPTIONS: Final = {"whitespace_pattern": r"[ \t\n\r]{0,64}", "coerce_one_of": True}
"""Space between tokens of JSON is bounded: small models fall into writing line breaks without end.

llguidance does not tell the branches of oneOf apart; it takes it as anyOf.
"""

SOURCE_SHOWN: Final = re.compile(r"\n +\d+ \| |\n<state>")
"""Where llguidance's messages go on with the grammar itself, which the client did not always write."""

NOT_IN_LARK: Final = re.compile(r"\\.|/|\n", re.DOTALL)
"""What must be written otherwise between Lark's slashes, and escapes, which are left as they are."""


class GrammarInvalid(OctavoError):
    """The grammar cannot be compiled; the text is fit to show to the client."""


class GrammarConstraint:
    """What one sequence may say next: a `TokenConstraint`. The grammar's state is copied at first use."""

    __slots__ = ("_matcher", "_num_consumed", "_prototype")

    def __init__(self, prototype: LLMatcher) -> None:
        self._prototype = prototype
        self._matcher: LLMatcher | None = None
        self._num_consumed = 0

    def allowed_after(self, output_token_ids: Sequence[int]) -> bytes | None:
        """One byte for each token id, 0 if it may not follow; None if the grammar cannot be followed."""
        if self._matcher is None:
            self._matcher = self._prototype.deep_copy()
        for token_id in output_token_ids[self._num_consumed :]:
            self._matcher.consume_token(token_id)
            self._num_consumed += 1
        allowed = self._matcher.compute_logit_bias()
        return None if self._matcher.is_error() else allowed


class Grammar:
    """A compiled grammar; never changes."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    def new_constraint(self) -> GrammarConstraint:
        """The state of a sequence that has no output yet."""
        return GrammarConstraint(self._matcher)


class GrammarCompiler:
    """Compiles grammars for one model. Call it from a worker thread: the first call takes a second."""

    def __init__(self, tokenizer: TextTokenizer, *, vocab_size: int, eos_token_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_token_ids = eos_token_ids
        self._prepared: LLTokenizer | None = None
        self._preparing = threading.Lock()

    def compile(self, lark: str) -> Grammar:
        """Compile a Lark grammar; raises GrammarInvalid."""
        if len(lark) > MAX_GRAMMAR_CHARS:
            raise GrammarInvalid(f"has {len(lark)} characters, at most {MAX_GRAMMAR_CHARS} are compiled")
        matcher = LLMatcher(self._prepare(), LLMatcher.grammar_from_lark(lark), log_level=0)
        if matcher.is_error():
            raise GrammarInvalid(SOURCE_SHOWN.split(matcher.get_error())[0].strip())
        return Grammar(matcher)

    def _prepare(self) -> LLTokenizer:
        with self._preparing:
            if self._prepared is None:
                self._prepared = self._prepare_tokenizer()
            return self._prepared

    def _prepare_tokenizer(self) -> LLTokenizer:
        if not self._eos_token_ids:
            raise GrammarInvalid("the model states no end-of-sequence token, which ends a grammar's text")
        num_ids = max(self._vocab_size, self._tokenizer.highest_id + 1)
        try:
            return LLTokenizer(
                self._tokenizer.to_json(), n_vocab=num_ids, eos_token=sorted(self._eos_token_ids)
            )
        except (ValueError, TypeError) as error:
            raise GrammarInvalid(f"not possible with this model's tokenizer: {error}") from error


def json_body(schema: Mapping[str, Any] | bool) -> str:
    """Lark's right side for a text that a JSON schema describes."""
    described: Mapping[str, Any] = {} if schema is True else {"not": {}} if schema is False else schema
    return f"%json {json.dumps({**described, 'x-guidance': JSON_OPTIONS})}"


def choice_body(choices: Sequence[str]) -> str:
    """Lark's right side for one of several texts.

    >>> print(choice_body(["yes", "no"]))
    "yes" | "no"
    """
    return " | ".join(json.dumps(choice) for choice in choices)


def regex_body(pattern: str) -> str:
    """Lark's right side for a text that a regular expression matches as a whole.

    >>> print(regex_body("a/b"))
    /a\\/b/
    """
    return "/" + NOT_IN_LARK.sub(_written_for_lark, pattern) + "/"


def _written_for_lark(found: re.Match[str]) -> str:
    return {"/": r"\/", "\n": r"\n"}.get(found[0], found[0])
