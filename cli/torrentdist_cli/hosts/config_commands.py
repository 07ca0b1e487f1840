"""`torrentdist config`: shows the effective configuration, and where each value comes from."""

from typing import Any

import click
import msgspec

from torrentdist.model.configuration.settings import DEFAULT_ORIGIN, KEYS, Loaded
from torrentdist.model.configuration.settings_rules import value_of
from torrentdist_cli.frame.command import Command, Group, Session
from torrentdist_cli.frame.rendering import grid, show


@click.group(cls=Group)
def config() -> None:
    """Show the configuration, and where each value comes from."""


@config.command(name="show", cls=Command)
@click.option("--origin", is_flag=True, help="Show the file, variable or flag that each value comes from.")
@click.argument("key", required=False)
def show_config(session: Session, key: str | None, origin: bool) -> None:
    """Show the effective configuration, or the value of one KEY.

    With -q: the keys that are not at their defaults; with KEY, its value.
    """
    loaded = session.loaded()
    keys = [known for known in KEYS if key in (None, known, known.partition(".")[0])]
    if not keys:
        raise click.BadParameter(f"there is no key {key!r}", param_hint="KEY")
    values = {name: value_of(loaded.config, name) for name in keys}
    show(
        session,
        _data(loaded, values, origin),
        value=_value(loaded, key, values),
        table=lambda: _table(loaded, values, origin),
    )


def _data(loaded: Loaded, values: dict[str, Any], origin: bool) -> dict[str, Any]:
    if origin:
        return {name: {"value": value, "origin": loaded.origins[name]} for name, value in values.items()}
    return values


def _value(loaded: Loaded, key: str | None, values: dict[str, Any]) -> str:
    if key in values:
        return _text(values[key])
    return "\n".join(name for name in values if loaded.origins[name] != DEFAULT_ORIGIN)


def _table(loaded: Loaded, values: dict[str, Any], origin: bool) -> str:
    if origin:
        rows = [(name, _text(value), loaded.origins[name]) for name, value in values.items()]
        return grid(("KEY", "VALUE", "ORIGIN"), rows)
    return grid(("KEY", "VALUE"), [(name, _text(value)) for name, value in values.items()])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
