"""The SentencePiece tokenizer inside a GGUF file (`tokenizer.ggml.model` is `llama`).

SentencePiece merges, again and again, the neighbours that make the piece with the highest score. A file
lists pieces and scores, `tokenizers` wants merges in their order: every way to cut a piece in two other
pieces, by the piece's score. Control and user-defined tokens are never merged but found as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tokenizers import Tokenizer, decoders, models, normalizers

from octavo.errors import InvalidConfig
from octavo_engine.gguf_file import GGUFFile
from octavo_engine.gguf_tokens import NORMAL, UNKNOWN, token_kinds, token_texts

SENTENCEPIECE: Final = "llama"
SPACE: Final = "\u2581"
"""What stands for a space inside of pieces."""


def sentencepiece_tokenizer(file: GGUFFile) -> Tokenizer:
    """The tokenizer, without its control and user-defined tokens; raises InvalidConfig."""
    tokens, kinds, scores = token_texts(file, "tokens"), token_kinds(file), _scores(file)
    if not len(tokens) == len(kinds) == len(scores) > 0:
        raise InvalidConfig(
            f"{file.path.name}: tokenizer.ggml.tokens, scores and token_type must have one length, not "
            f"{len(tokens)}, {len(scores)}, {len(kinds)}; put the model's tokenizer.json beside the file"
        )
    score_of = {
        token: score for token, kind, score in zip(tokens, kinds, scores, strict=True) if kind == NORMAL
    }
    unknown = next((token for token, kind in zip(tokens, kinds, strict=True) if kind == UNKNOWN), None)
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: number for number, token in enumerate(tokens)},
            merges=_merges(score_of),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    space_first = file.fields.get("tokenizer.ggml.add_space_prefix") is not False
    begin = [normalizers.Prepend(SPACE)] if space_first else []
    tokenizer.normalizer = normalizers.Sequence([*begin, normalizers.Replace(" ", SPACE)])
    tokenizer.decoder = _decoder(space_first=space_first)
    return tokenizer


def _decoder(*, space_first: bool) -> decoders.Decoder:
    end = [decoders.Strip(" ", 1, 0)] if space_first else []
    return decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *end])


def _scores(file: GGUFFile) -> Sequence[float]:
    values = file.fields.get("tokenizer.ggml.scores")
    return [float(value) for value in values] if isinstance(values, list) else []


def _merges(score_of: dict[str, float]) -> list[tuple[str, str]]:
    """All pairs of pieces that make a piece, those of the best first.

    >>> _merges({"a": -3.0, "b": -4.0, "ab": -1.0, "abb": -2.0})
    [('a', 'b'), ('ab', 'b')]
    """
    found = [
        (-score, piece[:cut], piece[cut:])
        for piece, score in score_of.items()
        for cut in range(1, len(piece))
        if piece[:cut] in score_of and piece[cut:] in score_of
    ]
    return [(left, right) for _, left, right in sorted(found, key=lambda merge: merge[0])]
