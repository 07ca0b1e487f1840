"""Kraken and Dragonfly beside ours: what is missing, and the settings that they run with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.neighbours import kraken
from bench.neighbours.neighbour_daemon import built
from bench.swarm.peers import lacking


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "torrentdist-neighbours"


def test_what_is_not_built_is_named_with_the_script_that_builds_it(cache: Path) -> None:
    """If this fails, a run of the lab breaks off after minutes because a program is not there."""
    (cache / "dragonfly-client-1.5.10").mkdir(parents=True)

    assert ["kraken (scripts/neighbours)", "dragonfly (scripts/neighbours)"] == lacking(
        ["kraken", "kraken-tuned", "dragonfly"]
    )


def test_a_program_is_told_from_another_whose_name_begins_alike(cache: Path) -> None:
    """If this fails, the scheduler of Dragonfly is looked for among its clients."""
    for name in ("dragonfly-client-1.5.10", "dragonfly-v2.5.1", "kraken-v0.1.27"):
        (cache / name).mkdir(parents=True)

    names = [built(program).name for program in ("dragonfly", "dragonfly-client", "kraken")]

    assert ["dragonfly-v2.5.1", "dragonfly-client-1.5.10", "kraken-v0.1.27"] == names


def test_krakens_settings_extend_those_that_it_publishes(cache: Path, tmp_path: Path) -> None:
    """If this fails, Kraken is measured with settings that nobody recommends, or the agents of the
    lab share a folder."""
    (cache / "kraken-v0.1.27").mkdir(parents=True)
    (home := tmp_path / "host").mkdir()

    said = json.loads(Path(kraken._config("agent", home, {}, kraken.TUNED)).read_text(encoding="utf-8"))

    assert str(cache / "kraken-v0.1.27/config/agent/base.yaml") == said["extends"]
    assert kraken.TUNED["scheduler"]["connstate"] == said["scheduler"]["connstate"]
    assert str(home / "torrent.log") == said["scheduler"]["torrentlog"]["path"]
    assert "metainfogen" not in said  # an agent has no such setting
