"""`octavo simulate --plot FILE`: what a person would see, and no simulation for a plot that cannot be."""

from __future__ import annotations

import errno
import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from octavo.errors import InvalidSpec
from octavo_operator.api.spec import Autoscaling
from octavo_operator.cli import simulate_command
from octavo_operator.cli.simulate_figure import draw, offered_load
from octavo_operator.cli.simulate_load import Load, Rate
from octavo_operator.cli.simulate_plot import check_plot, write_plot
from octavo_operator.simulation.comparison import Comparison, compare
from octavo_operator.simulation.run import Setting
from octavo_operator.simulation.workloads import Workload
from tests.octavo_operator.cli.test_render import Files
from tests.octavo_operator.simulation.small import QUIET, drawn, workload

SETTING = Setting(engine=QUIET, initial_replicas=1, max_replicas=4, cold_start_seconds=60)


def busy_half_hour() -> Workload:
    """Four requests a second for ten minutes, between ten of one in two seconds: 0.5, 4 and 0.5 req/s."""
    arrival = [index * 2.0 for index in range(300)]
    arrival += [600 + index / 4 for index in range(2400)]
    arrival += [1200 + index * 2.0 for index in range(300)]
    count = len(arrival)
    return workload(drawn(arrival, [1000] * count, [200] * count), seconds=1800.0, name="a trace of $5.csv")


LOAD = Load(workload=busy_half_hour(), refused=0, rate=Rate(requests_per_second=5 / 3, source="trace"))


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare(LOAD.workload, SETTING, Autoscaling(max_replicas=4))


@pytest.fixture(scope="module")
def figure(comparison: Comparison) -> Figure:
    return draw(comparison, LOAD, SETTING)


def panel(figure: Figure, label: str) -> Axes:
    (found,) = [axes for axes in figure.axes if axes.get_ylabel().startswith(label)]
    return found


def test_plot_shows_the_ready_replicas_of_every_policy_over_time(
    figure: Figure, comparison: Comparison
) -> None:
    lines = panel(figure, "ready replicas").lines
    assert len(lines) == len(comparison.runs) > 4
    for line, run in zip(lines, comparison.runs, strict=True):
        assert list(line.get_ydata()) == [1, *(moment.ready for moment in run.moments)]
        assert list(line.get_xdata()) == [0, *(moment.at / 60 for moment in run.moments)]
    assert max(lines[0].get_ydata()) > min(lines[0].get_ydata())


def test_plot_shows_the_offered_load_in_requests_a_second(figure: Figure) -> None:
    (stairs,) = panel(figure, "offered load").patches[:1]
    values = stairs.get_data().values
    assert values.max() == pytest.approx(4.0)
    assert values[5] == pytest.approx(0.5)


def test_plot_shows_what_each_policy_attains_for_its_hours(figure: Figure, comparison: Comparison) -> None:
    points = {
        (float(line.get_xdata()[0]), float(line.get_ydata()[0]))
        for line in panel(figure, "requests within").lines
        if len(line.get_xdata()) == 1
    }
    assert points == {(outcome.replica_hours, outcome.attained_percent) for outcome in comparison.outcomes}


def test_every_policy_is_named_and_told_apart_by_its_look(figure: Figure, comparison: Comparison) -> None:
    (legend,) = figure.legends
    named = [text.get_text() for text in legend.get_texts()]
    assert {outcome.policy for outcome in comparison.outcomes} < set(named)
    lines = panel(figure, "ready replicas").lines
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(lines)


@pytest.mark.parametrize(
    ("seconds", "bins"),
    [pytest.param(7200.0, 120, id="minutes"), pytest.param(90.0, 60, id="shorter ones of a short load")],
)
def test_offered_load_is_counted_in_minutes(seconds: float, bins: int) -> None:
    edges, rates = offered_load(replace(LOAD.workload, seconds=seconds))
    assert len(rates) == bins == len(edges) - 1
    num_requests = (LOAD.workload.requests.arrival <= seconds).sum()
    assert (rates * seconds / bins).sum() == pytest.approx(num_requests)


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        pytest.param("out.png", b"\x89PNG", id="png"),
        pytest.param("out.svg", b"<?xml", id="svg"),
        pytest.param("OUT.PNG", b"\x89PNG", id="in capitals"),
    ],
)
def test_plot_is_written_as_its_suffix_says_and_the_same_each_time(
    comparison: Comparison, tmp_path: Path, name: str, begins: bytes
) -> None:
    path = tmp_path / name
    check_plot(path)
    assert not path.exists()
    write_plot(comparison, LOAD, SETTING, path)
    first = path.read_bytes()
    write_plot(comparison, LOAD, SETTING, path)
    assert first.startswith(begins)
    assert path.read_bytes() == first


# Refused before anything is simulated -------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path)
    made.write(engine={"maxModelLen": 512}, autoscaling={"minReplicas": 1, "maxReplicas": 4})
    return made


def simulate(files: Files, plot: Path) -> int:
    trace = files.service.with_name("trace.csv")
    rows = [f"2026-01-01 00:00:{second:02d},40,5" for second in range(60)]
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    given = ["-f", str(files.service), "--model-config", str(files.config), "--trace", str(trace)]
    return simulate_command.main([*given, "--plot", str(plot)])


@pytest.fixture
def unsimulated(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("simulated for a plot that cannot be")

    monkeypatch.setattr(simulate_command, "compare", refuse)


@pytest.mark.usefixtures("unsimulated")
@pytest.mark.parametrize(
    ("place", "words"),
    [
        pytest.param("out.pdf", "must end in .png or .svg", id="another suffix"),
        pytest.param("out", "must end in .png or .svg", id="no suffix"),
        pytest.param("nowhere/out.png", "cannot be written: No such file or directory", id="no folder"),
        pytest.param("folder.png", "cannot be written: Is a directory", id="a folder"),
        pytest.param("service.yaml/out.png", "cannot be written: Not a directory", id="below a file"),
    ],
)
def test_plot_that_cannot_be_written_is_refused_before_anything_is_simulated(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str, words: str
) -> None:
    (tmp_path / "folder.png").mkdir()
    assert simulate(files, tmp_path / place) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("octavo simulate: --plot: ")
    assert words in printed.err


@pytest.mark.usefixtures("unsimulated")
def test_plot_without_matplotlib_says_what_to_install(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert simulate(files, tmp_path / "out.png") == 2
    said = capsys.readouterr().err
    assert "'matplotlib' is not installed; pip install 'octavo[operator,simulate,plot]'" in said


def test_earlier_plot_is_left_alone_by_a_run_that_is_refused(tmp_path: Path) -> None:
    earlier = tmp_path / "out.png"
    earlier.write_bytes(b"earlier")
    check_plot(earlier)
    assert earlier.read_bytes() == b"earlier"


def test_link_to_a_plot_that_is_not_there_yet_stays_a_link(tmp_path: Path) -> None:
    link, target = tmp_path / "out.png", tmp_path / "kept.png"
    link.symlink_to(target)
    check_plot(link)
    assert link.is_symlink()
    assert not target.exists()


def test_earlier_plot_outlives_one_that_is_interrupted(
    comparison: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(_figure: Figure, file: Path | BytesIO, **_kwargs: object) -> None:
        if isinstance(file, Path):
            file.write_bytes(b"half")
        raise KeyboardInterrupt

    earlier = tmp_path / "out.svg"
    earlier.write_bytes(b"earlier")
    monkeypatch.setattr(Figure, "savefig", begin)
    with pytest.raises(KeyboardInterrupt):
        write_plot(comparison, LOAD, SETTING, earlier)
    assert earlier.read_bytes() == b"earlier"


def test_table_is_printed_even_if_the_disk_is_full_when_the_plot_is_written(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_up(*_args: object, **_kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fill_up)
    assert simulate(files, tmp_path / "out.png") == 2
    printed = capsys.readouterr()
    assert "replicas over time: " in printed.out
    assert "cannot be written: No space left on device" in printed.err


def test_figure_names_a_load_whose_name_looks_like_a_formula(comparison: Comparison, tmp_path: Path) -> None:
    """A dollar sign would begin one in matplotlib, and one that does not end is an error."""
    odd = replace(LOAD, workload=replace(LOAD.workload, name=r"$\frac{ $.csv"))
    write_plot(comparison, odd, SETTING, tmp_path / "out.svg")
    with pytest.raises(InvalidSpec, match="must end in"):
        check_plot(tmp_path / "out.eps")
