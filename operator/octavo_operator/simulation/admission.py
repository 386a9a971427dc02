"""Whether a simulated replica admits one more sequence: the engine's forecast of its blocks, over arrays.

The rule is that of the engine's scheduler (predicted peak in whole blocks, a watermark of 1 %), written
again because the operator never imports the engine.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from octavo_operator.simulation.compiled import compiled
from octavo_operator.simulation.engine_law import StepLaw
from octavo_operator.simulation.fleet_state import HISTORY, Ints, Records

FIRST_GUESS_TOKENS: Final = 128
WATERMARK_RATIO: Final = 0.01


@compiled
def blocks_for(tokens: int, block_tokens: int) -> int:
    """Whole blocks that hold so many tokens."""
    return -(-tokens // block_tokens)


@compiled
def expected_output(lengths: Ints, known: int, generated: int, limit: int) -> int:
    """Output to expect in all: the median of the recent ones that were longer than this one is already."""
    start = np.searchsorted(lengths[:known], generated, side="right")
    longer = known - start
    if longer > 0:
        return min(limit, int(lengths[start + longer // 2]))
    return min(limit, max(FIRST_GUESS_TOKENS, 2 * generated))


@compiled
def remaining_tokens(law: StepLaw, requests: Records, replicas: Records, replica: int, request: int) -> int:
    """Output that is still expected of it, at least one token."""
    generated = requests[request]["generated"]
    known = min(replicas[replica]["num_outputs"], HISTORY)
    lengths = replicas[replica]["outputs_sorted"]
    return max(1, expected_output(lengths, known, generated, law.max_output_tokens) - int(generated))


@compiled
def own_tokens(requests: Records, request: int) -> int:
    """All its present tokens that are not of the shared prefix."""
    return int(requests[request]["prompt"] + requests[request]["generated"] - requests[request]["shared"])


@compiled
def can_admit(law: StepLaw, requests: Records, replicas: Records, replica: int, request: int) -> bool:
    """Whether all its present tokens fit now, and the predicted peak stays inside the pool."""
    own = own_tokens(requests, request)
    needed = blocks_for(own, law.block_tokens)
    prefix = max(replicas[replica]["shared_blocks"], requests[request]["shared"] // law.block_tokens)
    free = law.num_blocks - replicas[replica]["used_blocks"] - (prefix - replicas[replica]["shared_blocks"])
    if needed > free:
        return False
    count = replicas[replica]["num_running"]
    if count == 0:
        return True
    left = np.empty(count + 1, dtype=np.int64)
    tokens = np.empty(count + 1, dtype=np.int64)
    for index in range(count):
        other = replicas[replica]["running"][index]
        left[index] = remaining_tokens(law, requests, replicas, replica, other)
        tokens[index] = own_tokens(requests, other)
    left[count] = remaining_tokens(law, requests, replicas, replica, request)
    tokens[count] = own
    limit = law.num_blocks - int(law.num_blocks * WATERMARK_RATIO)
    return bool(prefix + peak_blocks(left, tokens, law.block_tokens) <= limit)


@compiled
def peak_blocks(left: Ints, tokens: Ints, block_tokens: int) -> int:
    """Most blocks in use at any time from now on: sequences with the least left end first.

    All generate in step. Before one ends, each that ends no sooner has begun a block more whenever
    the room in its last one was used up.
    """
    peak = 0
    held = 0
    having_room = np.zeros(block_tokens, dtype=np.int64)
    order = np.argsort(-left)
    for place in range(len(order)):
        index = order[place]
        blocks = blocks_for(tokens[index], block_tokens)
        held += blocks
        having_room[blocks * block_tokens - tokens[index]] += 1
        begun, rest = divmod(left[index], block_tokens)
        peak = max(peak, held + begun * (place + 1) + having_room[:rest].sum())
    return peak


@compiled
def remember_output(replicas: Records, replica: int, length: int) -> None:
    """Note a finished output, forgetting the oldest of a full history."""
    count = replicas[replica]["num_outputs"]
    lengths = replicas[replica]["outputs_sorted"]
    known = min(count, HISTORY)
    if known == HISTORY:
        oldest = replicas[replica]["outputs"][count % HISTORY]
        at = np.searchsorted(lengths[:known], oldest)
        for index in range(at, known - 1):
            lengths[index] = lengths[index + 1]
        known -= 1
    at = np.searchsorted(lengths[:known], length)
    for index in range(known, at, -1):
        lengths[index] = lengths[index - 1]
    lengths[at] = length
    replicas[replica]["outputs"][count % HISTORY] = length
    replicas[replica]["num_outputs"] = count + 1
