"""How much memory a process takes, as the kernel counts it."""

from __future__ import annotations

from pathlib import Path


def memory_of(pid: int) -> int:
    """Returns the bytes that are a process's own."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) * 1024


def peak_of(pid: int) -> int:
    """Returns the most bytes that were in a process's memory, less those of its files."""
    fields = dict(line.split(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    kilobytes = {name: int(fields[name].split()[0]) for name in ("VmHWM", "RssFile", "RssShmem")}
    return (kilobytes["VmHWM"] - kilobytes["RssFile"] - kilobytes["RssShmem"]) * 1024


def measured_anew(pid: int) -> None:
    """Begins to measure a process's peak from here on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
