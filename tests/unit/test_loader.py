"""The loader of plug-ins: a name in the configuration becomes a prepared object, or one clear
message."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from torrentdist.distributor.loader import ENTRY_POINTS, joins_uploads, keeps_limits, load_distributor
from torrentdist.distributor.torrent import TorrentCodeDistributor
from torrentdist.model.configuration.config import CodeDistributorConfig
from torrentdist.model.errors import TorrentdistError

CONF: Mapping[str, Any] = {"options": {}, "data_dir": "/nowhere", "host": None}
METHODS = {
    "prepare": "conf",
    "upload": "dir_path, bundle_id",
    "download": "dest_dir, bundle_id, metafile",
    "get_replication_count": "bundle_id",
    "cleanup": "bundle_id",
    "close": "",
}


def source(changed: Mapping[str, str] | None = None, *, without: tuple[str, ...] = ()) -> str:
    """Returns a module with a plug-in whose methods do nothing, except those that are changed or
    missing."""
    lines = ["class Plugin:", "    joins_uploads = True"]
    for method, parameters in METHODS.items():
        if method not in without:
            whole = f"def {method}(self, {parameters}): self.{method}_called = True"
            lines.append("    " + (changed or {}).get(method, whole))
    return "\n".join(lines)


@pytest.fixture
def plugin_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def refusal(name: str, options: Mapping[str, Any] | None = None) -> str:
    """Returns the message that says why this plug-in cannot be used."""
    with pytest.raises(TorrentdistError) as caught:
        load_distributor(name, {**CONF, "options": options or {}})
    error = caught.value
    prefix = f"codedistributor.class {name!r} cannot be used: "

    assert error.code == "plugin_invalid"
    assert error.message.startswith(prefix)
    return error.message.removeprefix(prefix)


def test_a_plugin_is_loaded_and_prepared(plugin_dir: Path) -> None:
    """No third party's plug-in would work."""
    (plugin_dir / "good_plugin.py").write_text(source())
    plugin = load_distributor("good_plugin:Plugin", CONF)

    assert type(plugin).__name__ == "Plugin"
    assert getattr(plugin, "prepare_called", False)
    assert joins_uploads(plugin)
    assert not keeps_limits(plugin)


def test_a_plugin_in_a_package_is_found(plugin_dir: Path) -> None:
    """Only top-level modules could be named."""
    (plugin_dir / "acme_pkg" / "deep").mkdir(parents=True)
    (plugin_dir / "acme_pkg" / "deep" / "plug.py").write_text(source())

    assert type(load_distributor("acme_pkg.deep.plug:Plugin", CONF)).__name__ == "Plugin"


def test_the_default_is_loaded() -> None:
    """A daemon without configuration would not start."""
    plugin = load_distributor(CodeDistributorConfig().class_, CONF)

    assert isinstance(plugin, TorrentCodeDistributor)
    assert joins_uploads(plugin)
    assert keeps_limits(plugin)


@pytest.mark.parametrize("name", ["a:", ":B", "a:b:c", "a b:C", "../a:B", "a..b:C", "a:B()", ".a:B"])
def test_another_form_is_refused(name: str) -> None:
    """A typing error would end in a traceback, or import something else."""
    assert refusal(name) == "it does not have the form package.module:Class"


def install(directory: Path, package: str, name: str, value: str) -> None:
    """Puts a package with an entry point where Python finds it."""
    info = directory / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[torrentdist.distributors]\n{name} = {value}\n")


def test_a_plugin_is_loaded_by_its_entry_point(plugin_dir: Path) -> None:
    """If this fails, an operator has to know the modules of a plug-in."""
    (plugin_dir / "named_plugin.py").write_text(source())
    install(plugin_dir, "acme", "acme-fast", "named_plugin:Plugin")

    assert "Plugin" == type(load_distributor("acme-fast", CONF)).__name__


@pytest.mark.parametrize("name", ["torrent", "local", "fs"])
def test_the_plugins_of_this_package_have_names(name: str) -> None:
    """If this fails, `codedistributor.class = "local"` keeps a daemon from starting."""
    [point] = entry_points(group=ENTRY_POINTS, name=name)

    assert name in point.load().__module__


@pytest.mark.parametrize("name", ["", "Plugin", "a.b.Plugin", "../a"])
def test_a_name_that_nobody_has_is_refused_with_the_names_that_there_are(name: str) -> None:
    """If this fails, a typing error leaves the operator to guess."""
    message = refusal(name)

    assert message.startswith("no installed package has a plug-in of this name (installed: ")
    assert "fs, local, torrent" in message


def test_a_name_that_two_packages_have_is_refused(plugin_dir: Path) -> None:
    """If this fails, the order of directories decides which code moves the bytes."""
    (plugin_dir / "named_plugin.py").write_text(source())
    install(plugin_dir, "acme", "twice", "named_plugin:Plugin")
    install(plugin_dir, "bcme", "twice", "other_plugin:Plugin")

    assert refusal("twice") == (
        "several packages have a plug-in of this name: named_plugin:Plugin, other_plugin:Plugin"
    )


def test_an_entry_point_that_is_no_class_is_refused(plugin_dir: Path) -> None:
    """If this fails, a broken package ends in a traceback."""
    install(plugin_dir, "acme", "whole-module", "named_plugin")

    assert refusal("whole-module") == "its entry point 'named_plugin' does not have the form package.module:Class"


def test_a_missing_module_is_named(plugin_dir: Path) -> None:
    """The operator would not see which part of the name is wrong."""
    (plugin_dir / "acme_real").mkdir()

    assert refusal("acme_nothing.plug:Plugin") == "there is no module 'acme_nothing'"
    assert refusal("acme_real.plug:Plugin") == "there is no module 'acme_real.plug'"


def test_a_failing_import_inside_is_told_apart(plugin_dir: Path) -> None:
    """The operator would search for the plug-in, although a module that it imports is missing."""
    (plugin_dir / "needy_plugin.py").write_text("import acme_not_installed\n" + source())
    (plugin_dir / "broken_plugin.py").write_text("1 / 0\n" + source())
    (plugin_dir / "unparsable_plugin.py").write_text("class Plugin(:\n")

    assert refusal("needy_plugin:Plugin") == (
        "importing needy_plugin raised ModuleNotFoundError: No module named 'acme_not_installed'"
    )
    assert refusal("broken_plugin:Plugin") == "importing broken_plugin raised ZeroDivisionError: division by zero"
    assert refusal("unparsable_plugin:Plugin").startswith("importing unparsable_plugin raised SyntaxError")


def test_a_missing_class_is_named(plugin_dir: Path) -> None:
    """A renamed class would end in an AttributeError."""
    (plugin_dir / "other_plugin.py").write_text(source() + "\nplugin = Plugin()\n")

    assert refusal("other_plugin:Plugins") == "other_plugin has no 'Plugins'"
    assert refusal("other_plugin:plugin") == "'plugin' is not a class but 'Plugin'"


def test_missing_methods_are_all_named(plugin_dir: Path) -> None:
    """A missing method would be noticed only weeks later, when the first bundle is removed."""
    (plugin_dir / "short_plugin.py").write_text(source(without=("cleanup", "close")))

    assert refusal("short_plugin:Plugin") == "it lacks cleanup(), close()"


@pytest.mark.parametrize(
    ("method", "definition", "problem"),
    [
        ("upload", "def upload(self, dir_path): ...", "upload() must take dir_path, bundle_id"),
        ("download", "def download(self, a, b, c, d): ...", "download() must take dest_dir, bundle_id, metafile"),
        ("close", "def close(self, conf): ...", "close() must take no arguments"),
        ("cleanup", "cleanup = staticmethod(lambda: None)", "cleanup() must take bundle_id"),
        ("upload", "async def upload(self, a, b): ...", "upload() is async; a plug-in's methods are synchronous"),
        ("close", "close = 3", "it lacks close()"),
    ],
)
def test_a_method_that_cannot_be_called_is_refused(
    plugin_dir: Path, monkeypatch: pytest.MonkeyPatch, method: str, definition: str, problem: str
) -> None:
    """A method of the wrong shape would be noticed at its first call."""
    (plugin_dir / "odd_plugin.py").write_text(source({method: definition}))
    monkeypatch.delitem(__import__("sys").modules, "odd_plugin", raising=False)

    assert refusal("odd_plugin:Plugin") == problem


@pytest.mark.parametrize(
    "definition",
    [
        "def upload(self, dir_path, bundle_id, *, fast=True): ...",
        "def upload(self, *args): ...",
        "upload = staticmethod(lambda dir_path, bundle_id: None)",
        "upload = classmethod(lambda cls, dir_path, bundle_id: None)",
    ],
)
def test_a_method_of_a_wider_shape_is_accepted(
    plugin_dir: Path, monkeypatch: pytest.MonkeyPatch, definition: str
) -> None:
    """Plug-ins that work would be refused."""
    (plugin_dir / "wide_plugin.py").write_text(source({"upload": definition}))
    monkeypatch.delitem(__import__("sys").modules, "wide_plugin", raising=False)

    assert load_distributor("wide_plugin:Plugin", CONF) is not None


def test_what_the_constructor_and_prepare_raise_is_told(plugin_dir: Path) -> None:
    """The daemon would start without a working plug-in, or hide what is wrong with its options."""
    (plugin_dir / "raising_plugin.py").write_text(
        source({"prepare": "def prepare(self, conf): raise ValueError('no bucket')"})
        + "\nclass Demanding(Plugin):\n    def __init__(self, bucket): ...\n"
    )

    assert refusal("raising_plugin:Plugin") == "prepare() raised ValueError: no bucket"
    assert refusal("raising_plugin:Demanding").startswith("Demanding() raised TypeError: ")


@pytest.mark.parametrize("module", ["torrent:Torrent", "local:Local", "fs:Fs"])
def test_an_unknown_option_of_ours_is_an_error(module: str) -> None:
    """A misspelt option would silently have no effect."""
    options = {"url": "file:///nowhere", "stall_sec": 3}
    options = options if module == "fs:Fs" else {"stall_sec": 3}

    assert "`stall_sec`" in refusal(f"torrentdist.distributor.{module}CodeDistributor", options)
