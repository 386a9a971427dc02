"""The LoRA adapters that an engine holds: loaded and unloaded by name while it runs.

| event                          | the name        | the weights                               |
| load                           | can be asked for | held                                     |
| unload                         | is free again   | held while sequences run or wait with it  |
| the last such sequence ends    |                 | given back                                |

Every load has an identity of its own, never used again: cached blocks are found by it, so that an
adapter loaded under an old name does not see its predecessor's keys and values.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from pathlib import Path

from octavo.errors import InvalidSpec
from octavo_engine.engine_facts import AdapterFacts
from octavo_engine.errors import StartError
from octavo_engine.models.adaptable import AdaptableDecoder
from octavo_engine.models.adapter_loading import read_adapter
from octavo_engine.requests import REFUSED_ADAPTER, REFUSED_UNKNOWN_ADAPTER, Refusal
from octavo_engine.scheduling.sequence import Sequence

BASE = ""
"""Identity of the model without an adapter."""


class AdapterTable:
    """Names, identities and use of adapters; `model` None takes none."""

    def __init__(self, model: AdaptableDecoder | None, *, max_adapters: int, max_rank: int) -> None:
        self._model = model
        self._max_adapters = max_adapters
        self._max_rank = max_rank
        self._num_loads = 0
        self._by_name: dict[str, AdapterFacts] = {}
        self._retired: set[str] = set()  # unloaded identities that sequences still use
        self._uses: Counter[str] = Counter()

    @property
    def most_bytes(self) -> int:
        """What all adapters take at most: as many as may be, of the highest rank, on every projection."""
        return 0 if self._model is None else self._max_adapters * self._model.most_bytes(self._max_rank)

    @property
    def listed(self) -> tuple[AdapterFacts, ...]:
        """Those that can be asked for, oldest first."""
        return tuple(self._by_name.values())

    def load(self, name: str, folder: Path) -> Refusal | None:
        """Read an adapter and serve it under a name; nothing changes if it is refused."""
        if name in self._by_name:
            return Refusal(REFUSED_ADAPTER, f"an adapter {name!r} is loaded already; unload it first")
        if self._model is None or len(self._by_name) + len(self._retired) >= self._max_adapters:
            return Refusal(REFUSED_ADAPTER, self._no_room())
        try:
            parts = read_adapter(folder, self._model, max_rank=self._max_rank)
        except (StartError, OSError, RecursionError) as error:
            return Refusal(REFUSED_ADAPTER, f"adapter {name!r}: {error}")
        self._num_loads += 1
        identity = f"{self._num_loads}:{name}"
        for module, part in parts.items():
            self._model.sites[module].add(identity, part)
        self._by_name[name] = AdapterFacts(
            name=name,
            identity=identity,
            num_bytes=sum(part.num_bytes for part in parts.values()),
            loaded=time.time(),
        )
        return None

    def _no_room(self) -> str:
        leaving = f", {len(self._retired)} of them unloaded but in use" if self._retired else ""
        held = len(self._by_name) + len(self._retired)
        return (
            f"{held} adapters are held{leaving}, and room is kept for {self._max_adapters}; "
            "unload one or start with a higher --max-loras"
        )

    def unload(self, name: str) -> Refusal | None:
        """Take the name away at once, and the weights when nothing runs or waits with them."""
        facts = self._by_name.pop(name, None)
        if facts is None:
            return unknown_adapter(name)
        self._retired.add(facts.identity)
        self._drop_if_unused(facts.identity)
        return None

    def identity_of(self, name: str) -> str | None:
        """What a request by this name runs with; None if there is no such adapter."""
        if name == BASE:
            return BASE
        facts = self._by_name.get(name)
        return None if facts is None else facts.identity

    def use(self, identity: str) -> None:
        """A sequence begins."""
        self._uses[identity] += 1

    def leave(self, identity: str) -> None:
        """A sequence has ended."""
        self._uses[identity] -= 1
        self._drop_if_unused(identity)

    def _drop_if_unused(self, identity: str) -> None:
        if self._uses[identity] > 0:
            return
        del self._uses[identity]
        if identity in self._retired and self._model is not None:
            self._retired.remove(identity)
            self._model.remove(identity)

    def names_of(self, sequences: Iterable[Sequence]) -> tuple[str, ...]:
        """Names of the adapters that these use."""
        if self._model is None:
            return ()
        identities = {sequence.adapter for sequence in sequences} - {BASE}
        return tuple(sorted({identity.partition(":")[2] for identity in identities}))

    def set_rows(self, spans: SequenceOf[tuple[str, slice]]) -> None:
        """Say whose rows those of the next step are."""
        if self._model is not None:
            self._model.rows.spans = spans

    def load_all(self, sources: SequenceOf[tuple[str, Path]]) -> None:
        """Those of the start; raises InvalidSpec for the first that is refused."""
        for name, folder in sources:
            refusal = self.load(name, folder)
            if refusal is not None:
                raise InvalidSpec(refusal.message)


def unknown_adapter(name: str) -> Refusal:
    """The answer to a name that is not, or no longer, loaded."""
    return Refusal(REFUSED_UNKNOWN_ADAPTER, f"no adapter {name[:200]!r} is loaded")
