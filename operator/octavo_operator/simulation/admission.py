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
def remaining_blocks(law: StepLaw, requests: Records, replicas: Records, replica: int, request: int) -> int:
    """Blocks that its further output is expected to take, at least one."""
    generated = requests[request]["generated"]
    known = min(replicas[replica]["num_outputs"], HISTORY)
    lengths = replicas[replica]["outputs_sorted"]
    growth = max(1, expected_output(lengths, known, generated, law.max_output_tokens) - generated)
    tokens = requests[request]["prompt"] + generated
    after = blocks_for(tokens + growth, law.block_tokens)
    return max(1, after - blocks_for(tokens, law.block_tokens))


@compiled
def own_blocks(law: StepLaw, requests: Records, request: int) -> int:
    """Blocks of all its present tokens that are not of the shared prefix."""
    tokens = requests[request]["prompt"] + requests[request]["generated"] - requests[request]["shared"]
    return blocks_for(tokens, law.block_tokens)


@compiled
def can_admit(law: StepLaw, requests: Records, replicas: Records, replica: int, request: int) -> bool:
    """Whether all its present tokens fit now, and the predicted peak stays inside the pool."""
    needed = own_blocks(law, requests, request)
    prefix = max(replicas[replica]["shared_blocks"], requests[request]["shared"] // law.block_tokens)
    free = law.num_blocks - replicas[replica]["used_blocks"] - (prefix - replicas[replica]["shared_blocks"])
    if needed > free:
        return False
    count = replicas[replica]["num_running"]
    if count == 0:
        return True
    left = np.empty(count + 1, dtype=np.int64)
    held = np.empty(count + 1, dtype=np.int64)
    for index in range(count):
        other = replicas[replica]["running"][index]
        left[index] = remaining_blocks(law, requests, replicas, replica, other)
        held[index] = own_blocks(law, requests, other)
    left[count] = remaining_blocks(law, requests, replicas, replica, request)
    held[count] = needed
    limit = law.num_blocks - int(law.num_blocks * WATERMARK_RATIO)
    return bool(prefix + peak_blocks(left, held) <= limit)


@compiled
def peak_blocks(left: Ints, held: Ints) -> int:
    """Most blocks in use at any time from now on: sequences with the least left end first."""
    peak = 0
    total = 0
    order = np.argsort(-left)
    for place in range(len(order)):
        index = order[place]
        total += held[index]
        peak = max(peak, total + left[index] * (place + 1))
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
