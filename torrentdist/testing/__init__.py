"""Tests for plug-ins of third parties: the conformance suite, and hosts on loopback to run it on.

Needs the extras `server` and pytest.
"""

import pytest

pytest.register_assert_rewrite("torrentdist.testing.conformance")

from torrentdist.testing.conformance import CodeDistributorConformance, PluginHost, PluginHosts  # noqa: E402
from torrentdist.testing.file_server import FileFault  # noqa: E402
from torrentdist.testing.loopback_hosts import LoopbackHost, LoopbackHosts  # noqa: E402

__all__ = ["CodeDistributorConformance", "FileFault", "LoopbackHost", "LoopbackHosts", "PluginHost", "PluginHosts"]
