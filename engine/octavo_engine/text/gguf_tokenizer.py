"""The tokenizer inside a GGUF file, and the chat template beside it.

How text is split before bytes are merged is stated only by a name (`tokenizer.ggml.pre`). A name that
is not known would give other tokens than the model was trained on, without any error, so it is refused;
so are vocabularies other than byte-level ones. Both are served with the model's tokenizer.json beside.
Source of the table: llama.cpp's src/llama-vocab.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from octavo.errors import InvalidConfig
from octavo_engine.gguf_file import GGUFFile

BYTE_LEVEL: Final = "gpt2"
CONTROL: Final = 3
USER_DEFINED: Final = 4
SPECIAL_IDS: Final = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Splitting:
    """What stands between a text and the merging of its bytes."""

    pattern: str | None
    """None: that of GPT-2."""
    digits_apart: bool = False
    whole_words: bool = False
    """A piece that is a token is not merged from its bytes; such models begin texts with BOS, too."""


LLAMA3: Final = Splitting(
    pattern=r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    whole_words=True,
)
SPLITTINGS: Final = {
    "gpt-2": Splitting(pattern=None),
    "smollm": Splitting(pattern=None, digits_apart=True),
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
}


def read_gguf_tokenizer(file: GGUFFile) -> tuple[Tokenizer, dict[str, object]]:
    """The tokenizer, and what tokenizer_config.json would say of it; raises InvalidConfig."""
    splitting = _splitting(file)
    tokens, merges = _texts(file, "tokens"), _texts(file, "merges")
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: number for number, token in enumerate(tokens)},
            merges=[_pair(merge) for merge in merges],
            ignore_merges=splitting.whole_words,
        )
    )
    tokenizer.pre_tokenizer = _pre_tokenizer(splitting)
    tokenizer.decoder = decoders.ByteLevel()
    _add_whole_tokens(tokenizer, tokens, file.fields.get("tokenizer.ggml.token_type"))
    stated = file.fields.get("tokenizer.ggml.add_bos_token")
    adds_bos = stated if isinstance(stated, bool) else splitting.whole_words
    return tokenizer, gguf_special_tokens(file) | {"add_bos_token": adds_bos}


def gguf_chat_template(file: GGUFFile) -> str | None:
    """The template's source."""
    source = file.fields.get("tokenizer.chat_template")
    return source if isinstance(source, str) else None


def gguf_special_tokens(file: GGUFFile) -> dict[str, object]:
    """`bos_token` and its like by name."""
    tokens = _texts(file, "tokens")
    ids = {name: file.integer(f"tokenizer.ggml.{key}", -1) for name, key in SPECIAL_IDS.items()}
    return {name: tokens[number] for name, number in ids.items() if 0 <= number < len(tokens)}


def _splitting(file: GGUFFile) -> Splitting:
    kind, name = file.fields.get("tokenizer.ggml.model"), file.fields.get("tokenizer.ggml.pre")
    splitting = SPLITTINGS.get(str(name))
    if kind != BYTE_LEVEL or splitting is None:
        raise InvalidConfig(
            f"{file.path.name}: tokenizer.ggml.model {kind!r} with tokenizer.ggml.pre {name!r} is not read; "
            "put the model's tokenizer.json beside the file"
        )
    return splitting


def _texts(file: GGUFFile, name: str) -> list[str]:
    values = file.fields.get(f"tokenizer.ggml.{name}")
    return [str(value) for value in values] if isinstance(values, list) else []


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right


def _pre_tokenizer(splitting: Splitting) -> pre_tokenizers.PreTokenizer:
    if splitting.pattern is not None:
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(splitting.pattern), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if not splitting.digits_apart:
        return byte_level
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])


def _add_whole_tokens(tokenizer: Tokenizer, tokens: list[str], kinds: object) -> None:
    """Control tokens and those that a user defined are found in a text as they are written."""
    if not isinstance(kinds, list):
        return
    marked = list(zip(tokens, kinds, strict=False))
    tokenizer.add_special_tokens([_added(token) for token, kind in marked if kind == CONTROL])
    tokenizer.add_tokens([_added(token) for token, kind in marked if kind == USER_DEFINED])


def _added(token: str) -> AddedToken:
    return AddedToken(token, normalized=False)
