"""torrentdist's suite against this plug-in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from torrentdist.testing import CodeDistributorConformance, PluginHosts


class TestFolderDistributor(CodeDistributorConformance):
    plugin = "acme-folder"

    @pytest.fixture
    def options(self, tmp_path: Path) -> Mapping[str, Any]:
        return {"folder": str(tmp_path / "shared")}

    def break_sources(self, trio: PluginHosts, options: Mapping[str, Any]) -> None:
        """Makes every download fail."""
        Path(options["folder"]).rename(options["folder"] + "-away")

    def mend_sources(self, trio: PluginHosts, options: Mapping[str, Any]) -> None:
        """Makes downloads succeed again."""
        Path(options["folder"] + "-away").rename(options["folder"])
