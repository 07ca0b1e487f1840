"""Copies an image from wherever skopeo can read it into an OCI layout on this host.

Always: credentials and policy are skopeo's own. A copy that is cancelled ends skopeo.
"""

import asyncio
import shutil
import threading
from pathlib import Path
from typing import Final

from torrentdist.bundle.images.layer_unpacking import UnpackedLayers, unpack_layers
from torrentdist.model.errors import TorrentdistError

_TRANSPORTS: Final = ("docker", "oci", "oci-archive", "docker-archive", "docker-daemon", "containers-storage", "dir")


async def import_as(
    source: str, layout: Path, tag: str, *, all_platforms: bool, unpacks: bool, verify_tls: bool
) -> UnpackedLayers:
    """Copies an image into a new layout, and unpacks its layers if that is wanted."""
    await copy_image(source_of(source), layout, tag, all_platforms=all_platforms, verify_tls=verify_tls)
    if not unpacks:
        return UnpackedLayers()
    stopping = threading.Event()
    try:
        return await asyncio.to_thread(unpack_layers, layout, stopping)
    finally:
        stopping.set()


def source_of(text: str) -> str:
    """Returns a source as skopeo knows it. A directory is an OCI layout, a file an archive of
    docker, and anything else without a transport a name in a registry."""
    if text.partition(":")[0] in _TRANSPORTS:
        return text
    path = Path(text)
    if path.is_dir():
        return f"oci:{text}"
    return f"docker-archive:{text}" if path.is_file() else f"docker://{text}"


async def copy_image(source: str, layout: Path, tag: str, *, all_platforms: bool, verify_tls: bool) -> None:
    """Copies an image into a new layout. Raises `image_unreadable` with what skopeo says."""
    skopeo = shutil.which("skopeo")
    if skopeo is None:
        raise TorrentdistError("skopeo_missing")
    command = [skopeo, "copy", "--quiet", "--dest-oci-accept-uncompressed-layers"]
    command += ["--all"] if all_platforms else []
    command += [] if verify_tls or not source.startswith("docker://") else ["--src-tls-verify=false"]
    process = await asyncio.create_subprocess_exec(
        *command, source, f"oci:{layout}:{tag}",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        _, errors = await process.communicate()
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    if process.returncode != 0:
        raise TorrentdistError("image_unreadable", source=source, detail=_reason(errors.decode("utf-8", "replace")))


def _reason(text: str) -> str:
    """Returns the sentence in skopeo's last line, which is `time="…" level=fatal msg="…"`."""
    last = text.strip().rpartition("\n")[2]
    return last.partition('msg="')[2].rstrip('"').replace('\\"', '"') or last or "skopeo does not say why"
