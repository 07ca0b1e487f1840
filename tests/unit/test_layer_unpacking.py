"""Layers of images are unpacked as their configuration says, or not at all."""

from __future__ import annotations

import gzip
import json
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest
from image_layouts import INDEX, LAYER, finish, layer_of, put_blob, put_image

from torrentdist.bundle.images.layer_unpacking import ORIGINAL, UnpackedLayers, unpack_layers
from torrentdist.model.errors import TorrentdistError

PLAIN = "application/vnd.oci.image.layer.v1.tar"
FILES = [{"etc/one": b"1" * 5000}, {"etc/two": bytes(range(256)) * 20}]


def read(layout: Path, digest: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((layout / "blobs" / digest.replace(":", "/")).read_bytes())
    return found


def images_of(layout: Path) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads((layout / "index.json").read_bytes())["manifests"]
    return listed


def test_layers_are_unpacked_and_the_configuration_stays(tmp_path: Path) -> None:
    """If this fails, an image runs with other files, or versions of it share nothing."""
    original = put_image(tmp_path, FILES)
    finish(tmp_path, [original], "1")
    before = read(tmp_path, original["digest"])

    done = unpack_layers(tmp_path)

    (named,) = images_of(tmp_path)
    manifest = read(tmp_path, named["digest"])
    config = read(tmp_path, manifest["config"]["digest"])
    packed = sum(layer["size"] for layer in before["layers"])
    assert UnpackedLayers(2, 0, packed, sum(len(layer_of(files)) for files in FILES)) == done
    assert before["config"] == manifest["config"]
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]
    assert [PLAIN, PLAIN] == [layer["mediaType"] for layer in manifest["layers"]]
    for layer, files in zip(manifest["layers"], FILES, strict=True):
        data = (tmp_path / "blobs" / layer["digest"].replace(":", "/")).read_bytes()
        assert layer_of(files) == data
        assert len(data) == layer["size"]
    assert original["digest"] == manifest["annotations"][ORIGINAL]
    assert "1" == named["annotations"]["org.opencontainers.image.ref.name"]
    kept = {path.name for path in (tmp_path / "blobs" / "sha256").iterdir()}
    wanted = [named, manifest["config"], *manifest["layers"]]
    assert {one["digest"].removeprefix("sha256:") for one in wanted} == kept


def test_an_unpacking_that_is_given_up_ends_at_once(tmp_path: Path) -> None:
    """If this fails, Ctrl-C waits for the layers of a large image, and leaves the image on the
    disk."""
    finish(tmp_path, [put_image(tmp_path, FILES)], "1")
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(TorrentdistError) as ended:
        unpack_layers(tmp_path, stopping)

    assert "interrupted" == ended.value.code
    assert [] == list((tmp_path / "layers").iterdir())


def test_an_index_of_platforms_is_unpacked_below(tmp_path: Path) -> None:
    """If this fails, an image for several platforms stays packed."""
    images = [put_image(tmp_path, [files]) for files in FILES]
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": images}
    finish(tmp_path, [{"mediaType": INDEX, **put_blob(tmp_path, json.dumps(index).encode())}], "1")

    assert 2 == unpack_layers(tmp_path).unpacked
    (named,) = images_of(tmp_path)
    for one in read(tmp_path, named["digest"])["manifests"]:
        assert [PLAIN] == [layer["mediaType"] for layer in read(tmp_path, one["digest"])["layers"]]
    assert 0 == unpack_layers(tmp_path).unpacked


def test_two_layers_of_the_same_files_are_one(tmp_path: Path) -> None:
    """If this fails, an image with two empty layers cannot be imported."""
    finish(tmp_path, [put_image(tmp_path, [FILES[0], FILES[0]])], "1")

    unpack_layers(tmp_path)

    assert ["000.tar"] == [path.name for path in (tmp_path / "layers").iterdir()]


def test_a_layer_of_several_members_is_unpacked_whole(tmp_path: Path) -> None:
    """pgzip writes such layers; a part of the image would be missing."""
    tar = layer_of(FILES[0])
    original = put_image(tmp_path, [FILES[0]])
    manifest = read(tmp_path, original["digest"])
    halves = gzip.compress(tar[:3000], mtime=0) + gzip.compress(tar[3000:], mtime=0)
    manifest["layers"] = [{"mediaType": LAYER, **put_blob(tmp_path, halves)}]
    changed = {**original, **put_blob(tmp_path, json.dumps(manifest).encode())}
    finish(tmp_path, [changed], "1")

    assert 1 == unpack_layers(tmp_path).unpacked


def test_a_layer_that_is_something_else_is_refused(tmp_path: Path) -> None:
    """If this fails, an image is published that no runtime takes."""
    original = put_image(tmp_path, [FILES[0]])
    manifest = read(tmp_path, original["digest"])
    manifest["layers"] = [{"mediaType": LAYER, **put_blob(tmp_path, gzip.compress(layer_of(FILES[1])))}]
    finish(tmp_path, [{**original, **put_blob(tmp_path, json.dumps(manifest).encode())}], "1")

    with pytest.raises(TorrentdistError, match="does not unpack to"):
        unpack_layers(tmp_path)
    assert [] == list((tmp_path / "layers").iterdir())


def test_what_another_image_needs_as_it_is_stays(tmp_path: Path) -> None:
    """An image whose packed layer another one has, too, would lose it when that is unpacked."""
    image = put_image(tmp_path, [FILES[0]])
    (layer,) = read(tmp_path, image["digest"])["layers"]
    other = {"layers": [{**layer, "mediaType": "application/x+gzip"}]}
    finish(tmp_path, [image, put_blob(tmp_path, json.dumps(other).encode())])

    done = unpack_layers(tmp_path)

    assert (1, 1) == (done.unpacked, done.kept)
    assert (tmp_path / "blobs" / layer["digest"].replace(":", "/")).exists()


def test_a_layer_that_is_packed_in_another_way_stays(tmp_path: Path) -> None:
    """An image of which one layer is packed by zstd could not be imported, or would lack it."""
    manifest = read(tmp_path, put_image(tmp_path, FILES)["digest"])
    manifest["layers"][1]["mediaType"] = other = "application/vnd.oci.image.layer.v1.tar+zstd"
    finish(tmp_path, [put_blob(tmp_path, json.dumps(manifest).encode())])

    done = unpack_layers(tmp_path)

    (named,) = images_of(tmp_path)
    assert (1, 1) == (done.unpacked, done.kept)
    assert [PLAIN, other] == [layer["mediaType"] for layer in read(tmp_path, named["digest"])["layers"]]


@pytest.mark.parametrize("config", [{}, {"rootfs": None}, {"rootfs": {"diff_ids": None}}, {"rootfs": {"diff_ids": []}}])
def test_a_configuration_of_other_layers_is_an_error(tmp_path: Path, config: dict[str, Any]) -> None:
    """An image without its list of layers would end the import with a bug."""
    manifest = read(tmp_path, put_image(tmp_path, [FILES[0]])["digest"])
    manifest["config"] = put_blob(tmp_path, json.dumps(config).encode())
    finish(tmp_path, [put_blob(tmp_path, json.dumps(manifest).encode())])

    with pytest.raises(TorrentdistError, match="other layers"):
        unpack_layers(tmp_path)


def test_only_gzip_is_unpacked(tmp_path: Path) -> None:
    """A layer that no runtime can unpack would be published."""
    tar = layer_of(FILES[0])
    manifest = read(tmp_path, put_image(tmp_path, [FILES[0]])["digest"])
    for number, data in enumerate((zlib.compress(tar), gzip.compress(tar[:3000]) + zlib.compress(tar[3000:]))):
        layout = tmp_path / str(number)
        put_image(layout, [FILES[0]])
        changed = manifest | {"layers": [{"mediaType": LAYER, **put_blob(layout, data)}]}
        finish(layout, [put_blob(layout, json.dumps(changed).encode())])

        with pytest.raises(TorrentdistError) as refused:
            unpack_layers(layout)

        assert "corrupt" == refused.value.code


@pytest.mark.parametrize("text", ["[]", "{", "[" * 100_000, '{"manifests": [{"digest": "../../etc/passwd"}]}'])
def test_an_index_that_is_none_is_an_error(tmp_path: Path, text: str) -> None:
    finish(tmp_path, [])
    (tmp_path / "index.json").write_text(text)

    with pytest.raises(TorrentdistError, match="cannot be a bundle"):
        unpack_layers(tmp_path)
