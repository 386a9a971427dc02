"""The tokenizer inside a GGUF file, and the chat template beside it.

Byte-level BPE (`gpt2`): how text is split before bytes are merged is stated only by a name
(`tokenizer.ggml.pre`). A name that is not known would give other tokens than the model was trained on,
without any error, so it is refused; so are kinds other than this and SentencePiece. They are served with
the model's tokenizer.json beside. Source of the table: llama.cpp's src/llama-vocab.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from octavo.errors import InvalidConfig
from octavo_engine.gguf_file import GGUFFile
from octavo_engine.gguf_tokens import CONTROL, USER_DEFINED, token_kinds, token_texts
from octavo_engine.text.gguf_sentencepiece import SENTENCEPIECE, sentencepiece_tokenizer

BYTE_LEVEL: Final = "gpt2"
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
    composed: bool = False
    """Accents are first joined with their letters (Unicode's NFC)."""


LLAMA3_PATTERN: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_PATTERN: Final = LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
TEKKEN_PATTERN: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O_PATTERN: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_ENDINGS}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_ENDINGS}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3: Final = Splitting(pattern=LLAMA3_PATTERN, whole_words=True)
QWEN2: Final = Splitting(pattern=QWEN2_PATTERN, composed=True)
SPLITTINGS: Final = {
    "gpt-2": Splitting(pattern=None),
    "smollm": Splitting(pattern=None, digits_apart=True),
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
    "dbrx": Splitting(pattern=LLAMA3_PATTERN),  # Phi-4
    "qwen2": QWEN2,
    "deepseek-r1-qwen": QWEN2,
    "tekken": Splitting(pattern=TEKKEN_PATTERN, whole_words=True),  # Mistral-NeMo
    "gpt-4o": Splitting(pattern=GPT4O_PATTERN),  # Phi-4-mini
}


def read_gguf_tokenizer(file: GGUFFile) -> tuple[Tokenizer, dict[str, object]]:
    """The tokenizer, and what tokenizer_config.json would say of it; raises InvalidConfig."""
    kind = file.fields.get("tokenizer.ggml.model")
    if kind == SENTENCEPIECE:
        tokenizer, begins_with_bos = sentencepiece_tokenizer(file), True
    else:
        splitting = _splitting(file)
        tokenizer, begins_with_bos = _byte_level_tokenizer(file, splitting), splitting.whole_words
    _add_whole_tokens(tokenizer, file)
    stated = file.fields.get("tokenizer.ggml.add_bos_token")
    adds_bos = stated if isinstance(stated, bool) else begins_with_bos
    return tokenizer, gguf_special_tokens(file) | {"add_bos_token": adds_bos}


def _byte_level_tokenizer(file: GGUFFile, splitting: Splitting) -> Tokenizer:
    tokens, merges = token_texts(file, "tokens"), token_texts(file, "merges")
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: number for number, token in enumerate(tokens)},
            merges=[_pair(merge) for merge in merges],
            ignore_merges=splitting.whole_words,
        )
    )
    if splitting.composed:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _pre_tokenizer(splitting)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def gguf_chat_template(file: GGUFFile) -> str | None:
    """The template's source."""
    source = file.fields.get("tokenizer.chat_template")
    return source if isinstance(source, str) else None


def gguf_special_tokens(file: GGUFFile) -> dict[str, object]:
    """`bos_token` and its like by name."""
    tokens = token_texts(file, "tokens")
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


def _add_whole_tokens(tokenizer: Tokenizer, file: GGUFFile) -> None:
    """Control tokens and those that a user defined are found in a text as they are written."""
    marked = list(zip(token_texts(file, "tokens"), token_kinds(file), strict=False))
    takes_space = _takes_space(file)
    tokenizer.add_special_tokens(
        [_added(token, takes_space=token in takes_space) for token, kind in marked if kind == CONTROL]
    )
    tokenizer.add_tokens([_added(token) for token, kind in marked if kind == USER_DEFINED])


def _takes_space(file: GGUFFile) -> frozenset[str]:
    """Tokens that the space after them belongs to: no file says so, but Phi-3's templates rely on it."""
    fields = file.fields
    if (fields.get("general.architecture"), fields.get("tokenizer.ggml.model")) != ("phi3", SENTENCEPIECE):
        return frozenset()
    return frozenset(token_texts(file, "tokens")) - {"<unk>", "<s>", "<|endoftext|>"}


def _added(token: str, *, takes_space: bool = False) -> AddedToken:
    return AddedToken(token, normalized=False, rstrip=takes_space)
