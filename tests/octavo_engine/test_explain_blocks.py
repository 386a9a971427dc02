"""`octavo-engine explain-blocks`: what it prints, what it refuses, and that it stays quick."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import InvalidSpec
from octavo_engine.cli.explain_blocks_command import MAX_BLOCKS, explain_blocks
from octavo_engine.cli.main import main

TABLE = """\
sequence  tokens  blocks  capacity  unused  block table
       0      35       3        48      13  [1, 2, 3]
       1      17       2        32      15  [4, 5]
       2      64       4        64       0  [6, 7, 8, 9]
   total     116       9       144      28

Block size 16: only a sequence's last block has unused slots, at most 15; here 28 of 144 (19.4%).
"""


def test_explain_blocks_prints_one_line_per_sequence_and_the_total(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain-blocks", "--lengths", "35,17,64"]) == 0
    assert capsys.readouterr().out == TABLE


def test_explain_blocks_prints_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain-blocks", "--lengths", "35, 17", "--block-size", "32", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "block_size": 32,
        "max_unused_slots_per_sequence": 31,
        "sequences": [
            {"length": 35, "num_blocks": 2, "block_table": [1, 2], "capacity_tokens": 64, "unused_slots": 29},
            {"length": 17, "num_blocks": 1, "block_table": [3], "capacity_tokens": 32, "unused_slots": 15},
        ],
        "totals": {"length": 52, "num_blocks": 3, "capacity_tokens": 96, "unused_slots": 44},
    }


def test_explain_blocks_shortens_a_long_block_table_in_the_table_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain-blocks", "--lengths", "128,144"]) == 0
    printed = capsys.readouterr().out
    assert "[1, 2, 3, 4, 5, 6, 7, 8]" in printed
    assert "[9, 10, 11, 12, 13, 14, …, 17]" in printed
    assert explain_blocks((144,), block_size=16).sequences[0].block_table == tuple(range(1, 10))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        pytest.param(["--lengths", "35,x"], ["--lengths", "'x'", "'35,x'", "as 35,17,64"], id="a word"),
        pytest.param(["--lengths", "35,0"], ["--lengths", "'0'", "from 1 up"], id="no tokens"),
        pytest.param(["--lengths", "35,,64"], ["--lengths", "''", "'35,,64'"], id="a gap"),
        pytest.param(["--lengths", "1.5"], ["--lengths", "'1.5'", "whole numbers"], id="a fraction"),
        pytest.param(["--lengths", "٣"], ["--lengths", "whole numbers"], id="digits of another script"),
        pytest.param(["--lengths", "9" * 30], ["--lengths", "whole numbers"], id="thirty digits"),
        pytest.param(
            ["--lengths", "5", "--block-size", "0"], ["--block-size", "'0'", "as 16"], id="no block"
        ),
        pytest.param(["--lengths", "5", "--output", "xml"], ["--output", "'xml'", "json"], id="a format"),
        pytest.param([], ["--lengths", "required"], id="nothing"),
    ],
)
def test_explain_blocks_names_flag_value_and_way_out_when_it_refuses(
    capsys: pytest.CaptureFixture[str], flags: list[str], words: list[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["explain-blocks", *flags])
    assert stopped.value.code == 2
    message = capsys.readouterr().err.rpartition("error:")[2]
    assert not [word for word in words if word not in message], message


def test_explain_blocks_refuses_more_blocks_than_anybody_reads() -> None:
    with pytest.raises(InvalidSpec, match=r"--lengths.*--block-size 1 .*100001 blocks.*larger --block-size"):
        explain_blocks((MAX_BLOCKS, 1), block_size=1)


@given(lengths=st.lists(st.integers(1, 700), min_size=1, max_size=8), block_size=st.integers(1, 130))
def test_explained_sequences_waste_less_than_a_block_and_share_none(
    lengths: list[int], block_size: int
) -> None:
    explained = explain_blocks(lengths, block_size=block_size)
    assert all(0 <= sequence.unused_slots < block_size for sequence in explained.sequences)
    ids = [block_id for sequence in explained.sequences for block_id in sequence.block_table]
    assert len(set(ids)) == len(ids) == explained.totals.num_blocks
    assert explained.totals.capacity_tokens - explained.totals.unused_slots == sum(lengths)


def test_explain_blocks_loads_no_torch() -> None:
    code = (
        "import sys; from octavo_engine.cli import main; main(['explain-blocks', '--lengths', '35']); "
        "sys.exit(bool({'torch', 'numpy', 'fastapi'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
