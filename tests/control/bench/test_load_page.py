"""docs/load.md names options, clients, figures and files that exist."""

import re
from pathlib import Path

from click.testing import CliRunner

from surgetank.control.bench.load.watch import Strain
from surgetank.control.bench.serve.figures import figures_of
from surgetank.control.bench.serve.player import Played
from surgetank.control.bench.serve.wishes import KINDS, Slo
from surgetank.control.cli import main
from surgetank.control.cli.bench_serve import serve

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "load.md").read_text("utf-8")


def test_its_options_exist() -> None:
    ours = PAGE.partition("## aiperf")[0]
    named = set(re.findall(r"--[a-z]+", ours))
    known = {option for each in serve.params for option in each.opts}
    assert {"--rate", "--slo", "--compare", "--tolerance"} <= named
    assert named <= known


def test_its_clients_are_all_there_are() -> None:
    table = PAGE.partition("| `--client` |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    assert sorted(re.findall(r"`([a-z0-9-]+)`", "".join(rows))) == sorted(KINDS)
    told = CliRunner().invoke(main, ["bench", "serve", "--help"]).stdout
    words = re.sub(r"\s+", " ", told)
    assert all(kind in words for kind in KINDS)


def test_its_figures_are_measured() -> None:
    figures = figures_of(Played([], 0.0, 1.0, Strain(0.0, 0.0, 0.0), 0), Slo())
    out = PAGE.partition("## What comes out")[2].partition("## Did it")[0]
    for name in re.findall(r"`([a-z0-9]+(?:_[a-z0-9]+)+)`", out):
        assert name in figures, name
    for name in ("mean_ttft_ms", "p99_e2el_ms", "p90_served_ttft_ms", "std_itl_ms"):
        assert name in figures


def test_its_files_and_targets_exist() -> None:
    for path in re.findall(r"(?:examples|tests)/[\w/.]+\w", PAGE):
        assert (ROOT / path).exists(), path
    assert "\nload-tools:" in (ROOT / "Makefile").read_text("utf-8")
