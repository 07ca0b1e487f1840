"""Generates deploy/kubernetes from the chart in deploy/helm, with the helm that HELM names. With
--check, prints which files are out of date, and changes nothing.

Always: a file begins with a line that names what it was made from, so that a test without helm sees
a change of either.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
CHART = ROOT / "deploy/helm/torrentdist"
FOLDER = ROOT / "deploy/kubernetes"
RULES = ROOT / "deploy/prometheus/rules.yml"
COPY = CHART / "rules.yml"
"""The alerts for the chart, which can have only files of its own folder."""
MONITORING = "serviceMonitor.enabled=true,serviceMonitor.rules=true"
SETTINGS = ("--kube-version", "1.29.0", "--set", MONITORING)
HEAD = "# Generated from deploy/helm by scripts/manifests.py: change the chart. Chart {}, text {}.\n"
_HEAD = re.compile(re.escape(HEAD).replace(r"\{\}", "([0-9a-f]{16})"))
HELM_SECS = 120


def names() -> list[str]:
    """Returns the files that the chart has a template for."""
    return sorted(path.name for path in (CHART / "templates").glob("*.yaml"))


def chart_digest() -> str:
    """Returns what changes with any file of the chart."""
    files = sorted(path for path in CHART.rglob("*") if path.is_file())
    return digest("".join(f"{path.relative_to(CHART)}\0{path.read_text()}\0" for path in files))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def rendered(helm: str, name: str) -> str:
    """Returns a file as helm makes it, with the head that names its sources."""
    command = [helm, "template", "torrentdist", str(CHART), *SETTINGS, "--show-only", f"templates/{name}"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=HELM_SECS, check=True).stdout
    text = re.sub(r"^# Source: .*\n", "", made, flags=re.MULTILINE)
    return HEAD.format(chart_digest(), digest(text)) + text


def stale(folder: Path = FOLDER) -> list[str]:
    """Returns the files that were not made from the chart as it is, or were changed since."""
    return [name for name in names() if not _is_current(folder / name)]


def _is_current(path: Path) -> bool:
    head, _, text = path.read_text().partition("\n") if path.exists() else ("", "", "")
    found = _HEAD.fullmatch(f"{head}\n")
    return found is not None and (found[1], found[2]) == (chart_digest(), digest(text))


def main() -> None:
    made = {COPY: RULES.read_text()}
    if "--check" not in sys.argv[1:]:
        COPY.write_text(made[COPY])
    made |= {FOLDER / name: rendered(os.environ.get("HELM", "helm"), name) for name in names()}
    differing = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        sys.exit("\n".join(f"{path.relative_to(ROOT)} is out of date" for path in differing) or 0)
    for path in differing:
        path.write_text(made[path])


if __name__ == "__main__":
    main()
