"""`torrentdist image`: container images as bundles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from torrentdist.bundle.images.image_names import Image, image_of, is_name, is_tag
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.bundle_messages import BundleView
from torrentdist.model.wire.transfer_messages import UploadPreview, UploadView
from torrentdist.model.wording import counted
from torrentdist_cli.bundles.reuse_wording import reuse_line
from torrentdist_cli.frame.asking_masters import ask_masters, cluster_of, run, run_with_progress
from torrentdist_cli.frame.command import Command, Group, Session, dry_run_option
from torrentdist_cli.frame.progress_bar import transfer_display
from torrentdist_cli.frame.rendering import DURATION, duration, facts, grid, show, show_all, size
from torrentdist_cli.frame.terminal import say

if TYPE_CHECKING:
    from torrentdist.bundle.images.layer_unpacking import UnpackedLayers

IMPORTING = "torrentdist-import-"
LIKELY_BYTES = 1024 * 1024 * 1024
"""How large an unpacked image is taken to be, before it is known."""


class ImageName(click.ParamType["Image"]):
    """A name with a tag."""

    name = "image"

    def convert(self, value: Image | str, param: click.Parameter | None, ctx: click.Context | None) -> Image:
        if isinstance(value, Image):
            return value
        name, _, tag = value.rpartition(":")
        if not is_name(name) or not is_tag(tag):
            raise TorrentdistError("invalid_image", text=value)
        return Image(name, tag)


@click.group(cls=Group)
def image() -> None:
    """Import container images, and list them."""


@image.command(name="import", cls=Command)
@click.argument("source")
@click.argument("image", metavar="NAME:TAG", type=ImageName())
@click.option("--all-platforms", is_flag=True, help="Import the image for every platform, not only for this host's.")
@click.option("--keep-compressed", is_flag=True, help="Keep layers as they are, and with them the image's digest.")
@click.option("--no-tls-verify", is_flag=True, help="Read from a registry whose certificate is not checked.")
@click.option("--timeout", type=DURATION, default="1h", show_default=True, help="Longest time to wait for masters.")
@dry_run_option
def import_image(
    session: Session,
    source: str,
    image: Image,
    all_platforms: bool,
    keep_compressed: bool,
    no_tls_verify: bool,
    timeout: float,
) -> None:
    """Make a bundle of a container image, which every host's gateway then serves.

    SOURCE is a layout's directory, an archive, a name in a registry, or anything else that skopeo
    can read, such as docker-daemon:app:1.

    Layers are kept unpacked, so that the next version of the image moves only the files that
    changed. The image's configuration and the hashes of its layers stay; its manifest is new and
    names the original's digest.

    With --dry-run the image is read, and nothing is uploaded. With -q: the id of the bundle.
    """
    from torrentdist.client.storage.image_source import import_as
    from torrentdist.client.storage.temporary_homes import temporary_home

    with temporary_home(IMPORTING, size=LIKELY_BYTES) as folder:
        layout = folder / "layout"
        copying = import_as(
            source, layout, image.tag, all_platforms=all_platforms, unpacks=not keep_compressed,
            verify_tls=not no_tls_verify,
        )  # fmt: skip
        done = run(copying)
        if session.dry_run:
            run_with_progress(
                transfer_display(session),
                lambda progress: cluster_of(session).preview(layout, image.bundle, progress=progress),
                lambda view: show(session, view, value=view.id, table=lambda: _moved(view)),
            )
        else:
            run_with_progress(
                transfer_display(session),
                lambda progress: cluster_of(session).upload(layout, image.bundle, timeout=timeout, progress=progress),
                lambda view: show(session, view, value=view.id, table=lambda: _table(image, view, done)),
            )
    if done.kept:
        say(f"{counted(done.kept, 'layer')} stays packed: only gzip is unpacked", label="notice:")


@image.command(cls=Command)
def ls(session: Session) -> None:
    """List the images.

    With -q: their names with their tags.
    """
    views = [view for view in ask_masters(session, lambda client: client.bundles()) if _name(view)]
    show_all(session, views, value=_name, table=lambda: _list_table(views))


def _name(view: BundleView) -> str:
    """Returns an image's name with its tag, or its bundle's id if that does not tell them."""
    found = image_of(view.id)
    if found is not None:
        return f"{found.name}:{found.tag}"
    return view.id if view.id.startswith("image--") else ""


def _list_table(views: list[BundleView]) -> str:
    rows = [[_name(view), size(view.size), _own(view), str(view.replicas), str(view.id)] for view in views]
    return grid(["IMAGE", "SIZE", "OWN", "REPLICAS", "BUNDLE"], rows)


def _own(view: BundleView) -> str:
    return "" if view.own_bytes is None else size(view.own_bytes)


def _moved(view: UploadView | UploadPreview) -> str:
    return reuse_line(view.new_bytes, view.size, view.reused_from)


def _table(image: Image, view: UploadView, done: UnpackedLayers) -> str:
    unpacked = f"{counted(done.unpacked, 'layer')}, {size(done.packed_bytes)} packed, {size(done.unpacked_bytes)} not"
    return facts(
        [
            ("image", f"{image.name}:{image.tag}"),
            ("bundle", view.id),
            ("unpacked", unpacked if done.unpacked else "nothing"),
            ("moved", _moved(view)),
            ("replicas", f"{view.replicas} of {view.min_replicas} wanted"),
            ("time", duration(view.seconds)),
        ]
    )
