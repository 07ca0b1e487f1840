"""A registry's client in a few lines, and skopeo, for tests of the gateway's registry."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

needs_skopeo = pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")


def new_name() -> str:
    return f"team/app-{secrets.token_hex(4)}"


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def skopeo(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return tool("skopeo", *arguments)


def tool(*command: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=180, env=clean | more)


def token_in(directory: Path) -> str:
    """Returns the token of a cluster on this machine."""
    config = tomllib.loads((directory / "client.toml").read_text())
    return Path(config["client"]["token_file"]).read_text().strip()


@dataclass(frozen=True)
class Registry:
    """The registry at a gateway, for one sender."""

    url: str
    """The gateway's URL."""
    auth: tuple[str, str] | None = None

    @property
    def creds(self) -> str:
        return ":".join(self.auth or ())

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")

    def ask(self, method: str, path: str, content: bytes | None = None, **headers: str) -> httpx.Response:
        url = path if path.startswith("http") else f"{self.url}{path if path.startswith('/') else f'/v2/{path}'}"
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.request(method, url, content=content, headers=sent, auth=self.auth, trust_env=False, timeout=120.0)

    def push_blob(self, name: str, data: bytes) -> str:
        begun = self.ask("POST", f"{name}/blobs/uploads/")
        assert 202 == begun.status_code, begun.text
        ended = self.ask("PUT", f"{begun.headers['location']}?digest={sha256(data)}", data)
        assert 201 == ended.status_code, ended.text
        return sha256(data)

    def push_layout(self, name: str, layout: Path, descriptor: dict[str, Any], reference: str) -> httpx.Response:
        """Pushes an image of a layout, and returns the answer to its manifest."""
        manifest = (layout / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
        parsed = json.loads(manifest)
        for blob in (parsed["config"], *parsed["layers"]):
            self.push_blob(name, (layout / "blobs" / blob["digest"].replace(":", "/")).read_bytes())
        return self.push_manifest(name, reference, manifest, descriptor["mediaType"])

    def push_manifest(self, name: str, reference: str, manifest: bytes, kind: str) -> httpx.Response:
        return self.ask("PUT", f"{name}/manifests/{reference}", manifest, content_type=kind)
