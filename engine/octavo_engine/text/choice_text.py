"""One choice of an answer: its tokens as text, cut at a stop string, with each token's place in it."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from octavo_engine.requests import TokenLogprob
from octavo_engine.text.detokenizer import Decode, IncrementalDetokenizer
from octavo_engine.text.stop_strings import StopStrings


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedLogprob:
    """A token's log-probability, and where in the choice's text the token begins."""

    logprob: TokenLogprob
    text_offset: int


@dataclass(slots=True)
class ChoiceText:
    """Accumulates one sequence. `take` hands over what became certain since the last call."""

    detokenizer: IncrementalDetokenizer
    stops: StopStrings
    min_tokens: int = 0
    num_tokens: int = 0
    _num_decoded: int = 0
    """Characters decoded so far, held-back ones included."""
    _num_released: int = 0
    _text: str = ""
    _logprobs: list[PlacedLogprob] = field(default_factory=list)
    _ended: bool = False

    @property
    def stopped(self) -> bool:
        """A stop string ended the text; further tokens are ignored."""
        return self.stops.matched is not None

    def push(self, token_id: int, logprob: TokenLogprob | None, *, hidden: bool = False) -> None:
        """Add one token. A hidden one (end of sequence) is counted but gives no text."""
        if self.stopped:
            return
        self.num_tokens += 1
        if logprob is not None:
            self._logprobs.append(PlacedLogprob(logprob=logprob, text_offset=self._num_decoded))
        if not hidden:
            self._add(self.detokenizer.push(token_id))

    def finish(self) -> None:
        """The sequence ended: release what was held back, unless a stop string ended it."""
        self._ended = True
        if not self.stopped:
            self._add(self.detokenizer.flush())
            self._release(self.stops.flush())

    def take(self) -> tuple[str, list[PlacedLogprob]]:
        """Text and log-probabilities that are certain and were not taken yet.

        A token whose text is held back waits for it: a stop string may still cut it off.
        """
        text, self._text = self._text, ""
        everything = self._ended and not self.stopped
        ready = [entry for entry in self._logprobs if everything or entry.text_offset < self._num_released]
        self._logprobs = self._logprobs[len(ready) :]
        return text, ready

    def _add(self, text: str) -> None:
        self._num_decoded += len(text)
        may_stop = self.num_tokens >= self.min_tokens
        self._release(self.stops.push(text) if may_stop else self.stops.pass_through(text))

    def _release(self, text: str) -> None:
        self._text += text
        self._num_released += len(text)


def new_choice_text(
    decode: Decode,
    *,
    silent_ids: Container[int] = (),
    stops: Sequence[str] = (),
    min_tokens: int = 0,
    context: Sequence[int] = (),
) -> ChoiceText:
    """A choice that has no tokens yet. `context`: the prompt's tokens where the text continues it."""
    detokenizer = IncrementalDetokenizer(decode, silent_ids=silent_ids, context=context)
    return ChoiceText(detokenizer, StopStrings(stops), min_tokens)
