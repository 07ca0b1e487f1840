"""Measures what comes down each host's link when an image has a new build, of which one package of
a hundredth of the bytes changed, in the middle of a layer.

Both builds are imported, which keeps layers unpacked. Beside it, both are kept as they came, so
that whole layers move, as other registries move them.
Always: bytes are those that came down a host's link in the lab, headers and all.
"""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path

from bench.gateway.sample_images import blobs, two_builds
from bench.lab.namespaces import Lab, received
from bench.results import Row
from bench.swarm.our_cluster import Ours
from bench.swarm.scenario import Scenario

BAR = 3.0
HOSTS = 2


class ImageHosts(Ours):
    """A cluster that has the first build of an image on all hosts."""

    def __init__(self, lab: Lab, layout: Path, options: list[str]) -> None:
        super().__init__(lab, Scenario(hosts=HOSTS, rate=0.0), layout)
        self._options = options

    def upload(self, source: Path, bundle: str) -> str:
        return self.imported(source, "1")

    def imported(self, layout: Path, tag: str) -> str:
        """Imports one build, and returns its bundle's digest."""
        made = self._command("image", "import", f"oci:{layout}:{tag}", f"app:{tag}", *self._options)
        return str(made["digest"])

    def distribute(self, tag: str) -> list[int]:
        """Brings a build to all hosts. Returns the bytes that came down each link."""
        before = received(self.hosts)
        self._command("bundle", "distribute", f"image--app--{tag}", "--wait", "100%")
        after = received(self.hosts)
        return [after[name] - before[name] for name in after]


def measure(lab: Lab, directory: Path, *, mib: int) -> list[Row]:
    first, second = two_builds(directory, mib)
    size = sum(blob.stat().st_size for blob in blobs(second))
    imported = _moved(lab, first, second, [])
    kept = _moved(lab, first, second, ["--keep-compressed"])
    shares = ", ".join(f"{100 * came / size:.2f} %" for came in imported)
    return [
        Row(
            key="image-builds",
            what=f"new build of an image of {size / 1e6:.0f} MB, 1 % of its bytes changed: bytes down each host's link",
            ours=100 * max(imported) / size,
            reference=100 * statistics.median(kept) / size,
            unit="%",
            against="whole layers",
            bar=BAR,
            note=f"{HOSTS} hosts: {shares}",
        )
    ]


def _moved(lab: Lab, first: Path, second: Path, options: list[str]) -> list[int]:
    fleet = ImageHosts(lab, first, options)
    fleet.up()
    try:
        fleet.distribute("1")
        fleet.imported(second, "2")
        return fleet.distribute("2")
    finally:
        fleet.down()
        shutil.rmtree(fleet.home, ignore_errors=True)
