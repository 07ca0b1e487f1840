"""Turns the name of a plug-in from the configuration into a prepared plug-in. The name is an entry
point of an installed package, such as `local`, or a class, as `package.module:Class`.

Always: a problem of a plug-in is found here, before the daemon serves any request, and raised as
`plugin_invalid` with the cause.
Never: know a plug-in by name.
"""

import importlib
import inspect
import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any, cast

from torrentdist.distributor.protocol import CodeDistributor
from torrentdist.model.errors import TorrentdistError

ENTRY_POINTS = "torrentdist.distributors"
"""The group of entry points that name plug-ins."""
_CLASS = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "prepare": ("conf",),
    "upload": ("dir_path", "bundle_id"),
    "download": ("dest_dir", "bundle_id", "metafile"),
    "get_replication_count": ("bundle_id",),
    "cleanup": ("bundle_id",),
    "close": (),
}


def load_distributor(name: str, conf: Mapping[str, Any]) -> CodeDistributor:
    """Checks, constructs and prepares the plug-in called `name`."""
    module_name, _, attribute = _class_address(name).partition(":")
    plugin_class = _class_of(name, _import(name, module_name), attribute)
    for problem in _problems(plugin_class):
        raise _invalid(name, problem)
    try:
        plugin = cast(CodeDistributor, plugin_class())
    except Exception as exc:
        raise _invalid(name, f"{attribute}() raised {_cause(exc)}") from exc
    try:
        plugin.prepare(conf)
    except Exception as exc:
        raise _invalid(name, f"prepare() raised {_cause(exc)}") from exc
    return plugin


def _class_address(name: str) -> str:
    """Returns the class that a name stands for, as `package.module:Class`."""
    if _CLASS.fullmatch(name):
        return name
    if ":" in name:
        raise _invalid(name, "it does not have the form package.module:Class")
    from importlib.metadata import entry_points  # which a class needs not

    installed = entry_points(group=ENTRY_POINTS)
    found = sorted({point.value for point in installed if point.name == name})
    if not found:
        names = ", ".join(sorted(installed.names)) or "none"
        raise _invalid(name, f"no installed package has a plug-in of this name (installed: {names})")
    if len(found) > 1:
        raise _invalid(name, f"several packages have a plug-in of this name: {', '.join(found)}")
    if not _CLASS.fullmatch(found[0]):
        raise _invalid(name, f"its entry point {found[0]!r} does not have the form package.module:Class")
    return found[0]


def joins_uploads(plugin: CodeDistributor) -> bool:
    """Whether download() of this plug-in works while the uploader is the only source."""
    return bool(getattr(plugin, "joins_uploads", False))


def keeps_limits(plugin: CodeDistributor) -> bool:
    """Whether this plug-in fetches a bundle no faster than its distribution says."""
    return bool(getattr(plugin, "keeps_limits", False))


def _import(name: str, module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as exc:
        missing = exc.name or ""
        if module_name == missing or module_name.startswith(missing + "."):
            raise _invalid(name, f"there is no module {missing!r}") from exc
        raise _invalid(name, f"importing {module_name} raised {_cause(exc)}") from exc
    except Exception as exc:
        raise _invalid(name, f"importing {module_name} raised {_cause(exc)}") from exc


def _class_of(name: str, module: ModuleType, attribute: str) -> type:
    try:
        found = getattr(module, attribute)
    except AttributeError as exc:
        raise _invalid(name, f"{module.__name__} has no {attribute!r}") from exc
    if not inspect.isclass(found):
        raise _invalid(name, f"{attribute!r} is not a class but {type(found).__name__!r}")
    return found


def _problems(plugin_class: type) -> list[str]:
    """Returns the reasons why the class is no CodeDistributor. All missing methods count as one
    reason."""
    missing = [method for method in _PARAMETERS if not callable(getattr(plugin_class, method, None))]
    if missing:
        return [f"it lacks {', '.join(f'{method}()' for method in missing)}"]
    problems = []
    for method, parameters in _PARAMETERS.items():
        function = getattr(plugin_class, method)
        if inspect.iscoroutinefunction(function):
            problems.append(f"{method}() is async; a plug-in's methods are synchronous")
        elif not _accepts(plugin_class, method, len(parameters)):
            problems.append(f"{method}() must take {', '.join(parameters) or 'no arguments'}")
    return problems


def _accepts(plugin_class: type, method: str, count: int) -> bool:
    """Whether a call with `count` positional arguments on an instance fits the method."""
    bound_to_instance = not isinstance(inspect.getattr_static(plugin_class, method), (staticmethod, classmethod))
    try:
        inspect.signature(getattr(plugin_class, method)).bind(*[None] * (count + bound_to_instance))
    except TypeError:
        return False
    except ValueError:  # a built-in may have no signature
        return True
    return True


def _cause(exc: BaseException) -> str:
    return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__


def _invalid(name: str, detail: str) -> TorrentdistError:
    return TorrentdistError("plugin_invalid", name=name, detail=detail)
