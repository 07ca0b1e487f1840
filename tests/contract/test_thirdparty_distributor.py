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


CARELESS = {
    "SwallowsErrors": "test_a_failed_download_is_a_failure_and_can_be_run_again",
    "CleansByPrefix": "test_cleaning_up_spares_ids_that_look_alike",
    "KeepsWhatLiesThere": "test_a_broken_download_is_completed",
}
"""Careless plug-ins, and the test of the suite that catches each."""
CARELESS_TEST = """
class Test{name}(Folder):
    plugin = "acme_plugins.careless:{name}"
"""


def test_a_careless_plugin_is_caught(tmp_path: Path) -> None:
    """If this fails, the suite approves a plug-in that loses bundles."""
    classes = "".join(CARELESS_TEST.format(name=name) for name in CARELESS)
    (tmp_path / "test_careless.py").write_text(
        f"from test_thirdparty_distributor import TestFolderDistributor as Folder\n{classes}\ndel Folder\n"
    )
    environment = {"PYTHONPATH": str(Path(__file__).parent), "PATH": "/usr/bin:/bin"}
    options = ["-o", "markers=case(id)", "--rootdir", str(tmp_path), "--basetemp", str(tmp_path / "runs")]
    tests = [f"test_careless.py::Test{name}::{caught_by}" for name, caught_by in CARELESS.items()]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *tests],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    assert all(f"FAILED {test}" in run.stdout for test in tests), run.stdout
