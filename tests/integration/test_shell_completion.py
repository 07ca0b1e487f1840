"""Completion in a real bash: commands without a cluster, ids from a real one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, make_source

BIN = Path(sys.executable).parent
NOBODY = "http://127.0.0.1:1"
ASK = """
eval "$(torrentdist completion bash)"
COMP_WORDS=({words}) COMP_CWORD={last}
_torrentdist_completion torrentdist
printf '%s\\n' "${{COMPREPLY[@]}}"
"""

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")


def complete(line: str, tmp_path: Path) -> list[str]:
    """Returns what bash offers after the user has typed this line in `tmp_path`."""
    words = line.split(" ")
    script = ASK.format(words=" ".join(f"'{word}'" for word in words), last=len(words) - 1)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TORRENTDIST_")}
    environ |= {"PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert "" == done.stderr
    return done.stdout.split()


def test_commands_and_options_are_completed(tmp_path: Path) -> None:
    """If this fails, the user has to know every command by heart."""
    assert ["download", "doctor"] == complete("torrentdist do", tmp_path)
    assert "--timeout" in complete("torrentdist download --ti", tmp_path)
    assert ["bash", "zsh", "fish"] == complete("torrentdist completion ", tmp_path)


def test_ids_are_completed(cluster: Cluster, tmp_path: Path) -> None:
    """If this fails, the user copies ids from a list."""
    cluster.upload(make_source(tmp_path / "source", seed=31), "complete-me")
    cluster.run("group", "add", "complete-group", "part-1").ok()
    cluster.run("token", "create", "complete-token", "--role", "reader").ok()
    shutil.copy(cluster.dir / "client.toml", tmp_path / "torrentdist.toml")

    assert ["complete-group"] == complete("torrentdist group show complete-", tmp_path)
    assert ["complete-token"] == complete("torrentdist token revoke complete-", tmp_path)
    assert [] == complete("torrentdist host revoke no-such", tmp_path)
    assert ["complete-me"] == complete("torrentdist download complete-", tmp_path)
    assert ["complete-me"] == complete("torrentdist bundle show complete-", tmp_path)
    assert cluster.supervisors() == complete("torrentdist supervisor drain ", tmp_path)
    assert cluster.masters() == complete("torrentdist ha transfer ", tmp_path)
    assert [] == complete("torrentdist job show no-such", tmp_path)


def test_without_a_master_there_is_nothing_to_choose_and_no_message(tmp_path: Path) -> None:
    """If this fails, an error appears in the middle of the user's line."""
    (tmp_path / "torrentdist.toml").write_text(f'[client]\nmasters = ["{NOBODY}"]\n')

    assert [] == complete("torrentdist download ", tmp_path)
