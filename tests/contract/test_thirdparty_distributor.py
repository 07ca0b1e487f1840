"""A third party's plug-in works by its name in the configuration alone, and the suite catches a
careless one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from torrentdist.testing import CodeDistributorConformance, PluginHosts

THIRD_PARTY = Path(__file__).parent / "thirdparty"


class TestFolderDistributor(CodeDistributorConformance):
    plugin = "acme_plugins.folder:FolderDistributor"

    @pytest.fixture(autouse=True)
    def installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(THIRD_PARTY))

    @pytest.fixture
    def options(self, tmp_path: Path) -> Mapping[str, Any]:
        return {"folder": str(tmp_path / "shared")}

    def break_sources(self, trio: PluginHosts, options: Mapping[str, Any]) -> None:
        Path(options["folder"]).rename(options["folder"] + "-away")

    def mend_sources(self, trio: PluginHosts, options: Mapping[str, Any]) -> None:
        Path(options["folder"] + "-away").rename(options["folder"])


CARELESS_TEST = """
from test_thirdparty_distributor import TestFolderDistributor as Folder

class TestCareless(Folder):
    plugin = "acme_plugins.careless:{name}"

del Folder
"""


@pytest.mark.parametrize(
    ("name", "caught_by"),
    [
        ("SwallowsErrors", "test_a_failed_download_is_a_failure_and_can_be_run_again"),
        ("CleansByPrefix", "test_cleaning_up_spares_ids_that_look_alike"),
        ("KeepsWhatLiesThere", "test_a_broken_download_is_completed"),
    ],
)
def test_a_careless_plugin_is_caught(tmp_path: Path, name: str, caught_by: str) -> None:
    """If this fails, the suite approves a plug-in that loses bundles."""
    (tmp_path / "test_careless.py").write_text(CARELESS_TEST.format(name=name))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", caught_by]
    environment = {"PYTHONPATH": str(Path(__file__).parent), "PATH": "/usr/bin:/bin"}
    options = ["-o", "markers=case(id)", "--rootdir", str(tmp_path), "--basetemp", str(tmp_path / "runs")]
    run = subprocess.run(
        [*command, *options, "test_careless.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    assert f"::{caught_by}" in run.stdout
