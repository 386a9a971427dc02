"""A simulated replica admits by the law of the engine that it stands for."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from octavo_engine.scheduling.admission import Forecast, predicted_peak_blocks
from octavo_operator.simulation.admission import peak_blocks

BLOCK = 16
SEQUENCES = st.lists(st.tuples(st.integers(1, 400), st.integers(1, 200)), min_size=1, max_size=8)
"""Tokens now, and tokens still to come."""


@given(SEQUENCES)
def test_simulated_replica_forecasts_the_peak_as_the_engine_does(sequences: list[tuple[int, int]]) -> None:
    tokens, left = (np.array(values, dtype=np.int64) for values in zip(*sequences, strict=True))
    forecasts = [
        Forecast(
            num_blocks=-(-now // BLOCK),
            room_tokens=-now % BLOCK,
            remaining_tokens=to_come,
            growth_blocks=-(-(now + to_come) // BLOCK) - -(-now // BLOCK),
        )
        for now, to_come in sequences
    ]
    assert peak_blocks(left, tokens, BLOCK) == predicted_peak_blocks(forecasts, block_size=BLOCK)
