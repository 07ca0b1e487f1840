"""Layouts of images that mean harm to the one who imports them."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from image_layouts import INDEX, LAYER, MANIFEST, finish, put_blob, put_image

from torrentdist.bundle.files.durability import free_bytes
from torrentdist.bundle.images.layer_unpacking import KEPT_FREE, unpack_layers
from torrentdist.model.errors import TorrentdistError

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="mounts take root")


def layout_of(place: Path, packed: bytes, config: object = None, times: int = 1) -> Path:
    """Makes a layout of one image with this layer, so many times."""
    plain = "sha256:" + "1" * 64
    made = {"rootfs": {"diff_ids": [plain] * times}} if config is None else config
    manifest = {
        "schemaVersion": 2,
        "config": put_blob(place, json.dumps(made).encode()),
        "layers": [{"mediaType": LAYER, **put_blob(place, packed)}] * times,
    }
    return finish(place, [{"mediaType": MANIFEST, **put_blob(place, json.dumps(manifest).encode())}], "1")


@needs_root
def test_a_layer_that_unpacks_to_more_than_the_disk_has_leaves_room(small_disk: Callable[[int], Path]) -> None:
    """A layer of ten megabytes would fill the disk of whoever imports it."""
    disk = small_disk(KEPT_FREE + 128 * 1024 * 1024)
    layout = layout_of(disk / "layout", gzip.compress(bytes(64 * 1024 * 1024), mtime=0) * 160)
    before = free_bytes(disk)

    with pytest.raises(TorrentdistError) as refused:
        unpack_layers(layout)

    assert "disk_full" == refused.value.code
    assert before == free_bytes(disk)
    assert [] == list((layout / "layers").iterdir())


@needs_root
def test_a_full_disk_is_told(small_disk: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A user would be told of a bug of ours, and not to free some room."""
    monkeypatch.setattr("torrentdist.bundle.images.layer_unpacking.KEPT_FREE", 0)
    layout = layout_of(small_disk(8 * 1024 * 1024) / "layout", gzip.compress(bytes(64 * 1024 * 1024), mtime=0))

    with pytest.raises(TorrentdistError, match="not enough room"):
        unpack_layers(layout)


def test_a_layer_of_many_empty_members_is_read_in_time(tmp_path: Path) -> None:
    """A layer of six megabytes would keep a processor busy for minutes."""
    layout = layout_of(tmp_path, gzip.compress(b"", mtime=0) * 300_000)
    began = time.thread_time()

    with pytest.raises(TorrentdistError, match="does not unpack"):
        unpack_layers(layout)
    assert time.thread_time() - began < 8


def test_a_layer_is_unpacked_once_however_often_it_is_named(tmp_path: Path) -> None:
    """A manifest of a megabyte would unpack terabytes, one after the other."""
    image = put_image(tmp_path, [{"one": bytes(1_000_000)}])
    manifest = json.loads((tmp_path / "blobs" / image["digest"].replace(":", "/")).read_text())
    config = json.loads((tmp_path / "blobs" / manifest["config"]["digest"].replace(":", "/")).read_text())
    many = {"rootfs": {"diff_ids": config["rootfs"]["diff_ids"] * 9000}}
    manifest |= {"layers": manifest["layers"] * 9000, "config": put_blob(tmp_path, json.dumps(many).encode())}
    finish(tmp_path, [put_blob(tmp_path, json.dumps(manifest).encode())] * 9000)
    began = time.thread_time()

    done = unpack_layers(tmp_path)

    assert 1 == done.unpacked
    assert time.thread_time() - began < 5


@pytest.mark.parametrize(("depth", "told"), [(8, None), (9, "nested")])
def test_indexes_of_indexes_end(tmp_path: Path, depth: int, told: str | None) -> None:
    """An index of a few kilobytes, each of forty times the one below, would be followed for
    ever."""
    named = [put_image(tmp_path, [{"one": b"1"}])]
    for _ in range(depth):
        named = [{"mediaType": INDEX, **put_blob(tmp_path, json.dumps({"manifests": named * 40}).encode())}]
    finish(tmp_path, named)
    began = time.thread_time()

    if told is None:
        assert 1 == unpack_layers(tmp_path).unpacked
    else:
        with pytest.raises(TorrentdistError, match=told):
            unpack_layers(tmp_path)
    assert time.thread_time() - began < 5


def test_an_index_that_leads_to_itself_ends(tmp_path: Path) -> None:
    """A layout whose files are not what their names say would end the import with a bug."""
    own = {"digest": "sha256:" + "2" * 64, "size": 1}
    put_blob(tmp_path, b"")
    (tmp_path / "blobs" / own["digest"].replace(":", "/")).write_text(json.dumps({"manifests": [own]}))  # type: ignore[attr-defined]

    with pytest.raises(TorrentdistError, match="nested"):
        unpack_layers(finish(tmp_path, [own]))


@pytest.mark.parametrize("wrong", [3, "x", [3], {"a": 1}, [None], [{"digest": 3}], [{"digest": ["x"]}]])
@pytest.mark.parametrize("field", ["manifests", "layers", "config", "rootfs", "diff_ids", "annotations"])
def test_a_field_of_another_kind_is_told(tmp_path: Path, field: str, wrong: Any) -> None:
    """A user would be told of a bug of ours, and not that the image is broken."""
    if field in ("rootfs", "diff_ids"):
        config = {"rootfs": wrong} if field == "rootfs" else {"rootfs": {"diff_ids": wrong}}
        layout = layout_of(tmp_path, gzip.compress(b""), config)
    else:
        image = put_image(tmp_path, [{"one": b"1"}])
        manifest = json.loads((tmp_path / "blobs" / image["digest"].replace(":", "/")).read_text())
        changed = put_blob(tmp_path, json.dumps({**manifest, field: wrong}).encode())
        layout = finish(tmp_path, [changed])

    with pytest.raises(TorrentdistError, match="cannot be a bundle"):
        unpack_layers(layout)


@pytest.mark.parametrize("where", ["../../../outside", "/etc/hostname", "sha256:../../index.json", "sha256/x", ""])
@pytest.mark.parametrize("what", ["manifest", "config", "layer", "diff_id"])
def test_no_digest_leads_out_of_the_layout(tmp_path: Path, where: str, what: str) -> None:
    """An image would read files of its host, or write some."""
    outside = tmp_path / "outside"
    outside.write_bytes(gzip.compress(b"secret"))
    layout = tmp_path / "a" / "layout"
    image = put_image(layout, [{"one": b"1"}])
    manifest = json.loads((layout / "blobs" / image["digest"].replace(":", "/")).read_text())
    if what == "layer":
        manifest["layers"][0]["digest"] = where
    elif what == "config":
        manifest["config"]["digest"] = where
    elif what == "diff_id":
        manifest["config"] = put_blob(layout, json.dumps({"rootfs": {"diff_ids": [where]}}).encode())
    named = put_blob(layout, json.dumps(manifest).encode())
    finish(layout, [{"digest": where} if what == "manifest" else named])
    before = sorted(path for path in tmp_path.rglob("*") if "layout" not in path.parts)

    with pytest.raises(TorrentdistError, match="is no digest"):
        unpack_layers(layout)

    assert before == sorted(path for path in tmp_path.rglob("*") if "layout" not in path.parts)
    assert gzip.compress(b"secret")[10:] == outside.read_bytes()[10:]
