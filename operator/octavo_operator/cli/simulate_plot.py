"""`octavo simulate --plot FILE`: whether there can be such a file, asked before the simulation, and the file.

The figure itself is in `simulate_figure`, which needs matplotlib and is imported only for a plot.
"""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from octavo.cli.main import missing_part
from octavo.errors import InvalidSpec
from octavo_operator.cli.simulate_load import Load
from octavo_operator.simulation.comparison import Comparison
from octavo_operator.simulation.run import Setting

METADATA: Final[dict[str, dict[str, Any]]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
}
"""By suffix of what can be drawn; without these, the same run gives the same file."""


def check_plot(path: Path) -> None:
    """Refuse another suffix, a Python without matplotlib, and a place that cannot be written."""
    if path.suffix.lower() not in METADATA:
        raise InvalidSpec(f"--plot: {str(path)!r} must end in {' or '.join(METADATA)}")
    try:
        import_module("matplotlib")
    except ModuleNotFoundError as error:
        raise InvalidSpec(f"--plot: {missing_part(error)}, or leave it out") from None
    try:
        target = path.resolve()  # of a link, where it points to
        is_new = not target.exists()
        target.open("ab").close()
        if is_new:
            target.unlink()
    except OSError as error:
        raise _unwritable(path, error) from None


def write_plot(comparison: Comparison, load: Load, setting: Setting, path: Path) -> None:
    from matplotlib import rc_context

    from octavo_operator.cli.simulate_figure import draw

    suffix = path.suffix.lower()
    with rc_context({"svg.hashsalt": "octavo"}):
        drawn = BytesIO()  # whole before the file is opened: an earlier plot outlives an interrupted one
        draw(comparison, load, setting).savefig(drawn, format=suffix[1:], metadata=METADATA[suffix])
    try:
        path.write_bytes(drawn.getvalue())
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> InvalidSpec:
    reason = error.strerror or error
    return InvalidSpec(f"--plot: {str(path)!r} cannot be written: {reason}; name a file where you may write")
