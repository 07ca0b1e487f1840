"""The building blocks of the console's pages: text, links, tables, commands to copy, and the frame
around them.

Pure: values in, HTML out.
Always: text from outside is escaped. `Markup` is a type of its own, so that a checker of types
finds text that was forgotten.
Never: write an inline style or script, which the pages' own policy forbids.
"""

import time
from collections.abc import Iterable, Sequence
from html import escape
from typing import NewType
from urllib.parse import quote, urlencode

import msgspec

from torrentdist.charts.quantities import percent, seconds, size
from torrentdist.model.jobs.report_bounds import sensible_time
from torrentdist.security.authorization import Principal

Markup = NewType("Markup", str)
NOTHING = Markup("")
UNKNOWN = Markup('<span class="soft">unknown</span>')
LINKS = (
    ("/ui/", "Overview"),
    ("/ui/bundles", "Bundles"),
    ("/ui/distributions", "Distributions"),
    ("/ui/hosts", "Hosts"),
    ("/ui/masters", "Masters"),
    ("/ui/jobs", "Jobs"),
    ("/ui/events", "Events"),
    ("/ui/retention", "Retention"),
    ("/ui/tokens", "Tokens"),
    ("/ui/certificates", "Certificates"),
)


class Visit(msgspec.Struct, frozen=True):
    """What every page says besides its own content."""

    master: str
    path: str
    query: str
    sender: Principal
    form_key: str
    leader: str = ""
    """The id of the leader; empty: none is known."""
    leader_url: str = ""
    others: Sequence[tuple[str, str]] = ()
    """The other masters, and their URLs."""
    stale_secs: float | None = None
    said: str = ""
    """What the change did that led here; empty: none did."""

    @property
    def leads(self) -> bool:
        return self.leader == self.master


class Field(msgspec.Struct, frozen=True):
    """A field of a form of filters."""

    name: str
    label: str
    value: str = ""
    choices: Sequence[str] = ()
    """The values to choose from; a filter may also stay empty. No choices: any text."""


def text(value: object) -> Markup:
    return Markup(escape(str(value)))


def join(parts: Iterable[Markup], between: str = "") -> Markup:
    return Markup(between.join(parts))


def link(address: str, label: object) -> Markup:
    return Markup(f'<a href="{escape(address)}">{escape(str(label))}</a>')


def address(kind: str, name: str) -> str:
    """Returns the address of the page about one thing."""
    return f"/ui/{kind}/{quote(name, safe='')}"


def to(kind: str, name: str) -> Markup:
    return link(address(kind, name), name)


def badge(word: object, tone: str = "") -> Markup:
    """Returns a word with a coloured edge. `tone`: `good`, `bad`, `warn` or none."""
    return Markup(f'<span class="badge {escape(tone)}">{escape(str(word))}</span>')


def command(line: str) -> Markup:
    """Returns a command of ours that the reader can copy."""
    shown = escape(line)
    button = f'<button type="button" data-copy="{shown}">Copy</button>'
    return Markup(f'<div class="command"><code tabindex="0">{shown}</code>{button}</div>')


def output(title: str, content: str) -> Markup:
    """Returns what a program wrote, line by line."""
    shown = escape(content) or "Nothing yet."
    return Markup(f'<pre class="output" tabindex="0" role="region" aria-label="{escape(title)}">{shown}</pre>')


def tiles(values: Sequence[tuple[str, Markup, str]]) -> Markup:
    """Returns figures side by side: what each is, its value, and its tone."""
    cells = (
        f'<div class="{escape(tone)}"><dt>{escape(name)}</dt><dd>{value}</dd></div>' for name, value, tone in values
    )
    return Markup(f'<dl class="tiles">{"".join(cells)}</dl>')


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[Markup]], none: str = "None.") -> Markup:
    """Returns a table, or the sentence `none` if it has no rows. Each cell names its column, for
    windows that are too narrow for columns."""
    named = [f'<td data-of="{escape(name)}">' for name in heads]
    body = "".join(
        f"<tr>{''.join(f'{td}{cell}</td>' for td, cell in zip(named, row, strict=True))}</tr>" for row in rows
    )
    if not body:
        return Markup(f'<p class="soft">{escape(none)}</p>')
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    return Markup(
        f'<div class="table" tabindex="0" role="region" aria-label="{escape(title)}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def facts(values: Sequence[tuple[str, Markup]]) -> Markup:
    """Returns names and values of one thing, one pair a line."""
    rows = (f"<dt>{escape(name)}</dt><dd>{value}</dd>" for name, value in values)
    return Markup(f'<dl class="facts">{"".join(rows)}</dl>')


def section(title: str, *parts: Markup) -> Markup:
    return Markup(f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>")


def live(source: str, content: Markup) -> Markup:
    """Returns content that the page's script replaces with the events from `source`. Without the
    script the content stays."""
    return Markup(f'<div data-live="{escape(source)}">{content}</div><p class="soft age"></p>')


def filter_form(fields: Sequence[Field]) -> Markup:
    """Returns a form that puts its fields into the address."""
    shown = inputs(fields, (("", "any"),))
    return Markup(f'<form class="filter" method="get" role="search">{shown}<button>Filter</button></form>')


def inputs(fields: Iterable[Field], more: Sequence[tuple[str, str]] = ()) -> Markup:
    """`more`: what may be chosen besides the values of a field, and its words."""
    return Markup("".join(f"<label>{escape(field.label)} {_input(field, more)}</label>" for field in fields))


def _input(field: Field, more: Sequence[tuple[str, str]]) -> str:
    name, value = escape(field.name), escape(field.value)
    if not field.choices:
        return f'<input name="{name}" value="{value}" maxlength="4000">'
    known = [*more, *((choice, choice) for choice in field.choices)]
    options = "".join(
        f'<option value="{escape(choice)}"{" selected" if choice == field.value else ""}>{escape(shown)}</option>'
        for choice, shown in known
    )
    return f'<select name="{name}">{options}</select>'


def next_page(visit: Visit, last: str, kept: dict[str, str]) -> Markup:
    """Returns the link to the page of a list that begins after the entry `last`."""
    query = urlencode({**{name: value for name, value in kept.items() if value}, "after": last})
    return Markup(f'<p><a rel="next" href="{escape(visit.path)}?{escape(query)}">Next page</a></p>')


def numbered_page(visit: Visit, number: int, kept: dict[str, str]) -> Markup:
    """Returns the link to a page of a list by its number."""
    query = urlencode({**kept, "page": number})
    return Markup(f'<p><a rel="next" href="{escape(visit.path)}?{escape(query)}">Next page</a></p>')


def moment(at: float) -> Markup:
    if not sensible_time(at):
        return UNKNOWN
    shown = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))
    return Markup(f'<time datetime="{shown.replace(" ", "T")}Z">{shown} UTC</time>')


def bytes_of(value: float) -> Markup:
    return text(size(value))


def duration(value: float | None) -> Markup:
    return UNKNOWN if value is None else text(seconds(value))


def share(part: float, whole: float) -> Markup:
    return text(percent(part / whole)) if whole else text("–")


def page(visit: Visit, title: str, *parts: Markup) -> str:
    """Returns a whole page."""
    links = "".join(
        f'<a href="{path}"{" aria-current=page" if _is_here(visit.path, path) else ""}>{name}</a>'
        for path, name in LINKS
    )
    stale = ""
    if visit.stale_secs is not None:
        age = escape(seconds(visit.stale_secs))
        stale = f'<p class="notice bad" role="status">ZooKeeper is out of reach: what you see is {age} old.</p>'
    stale += _late(visit)
    if visit.said:
        stale += f'<p class="notice good" role="status">{escape(visit.said)}</p>'
    content = (
        f'<a class="skip" href="#content">Skip to the content</a><header><strong>torrentdist</strong>'
        f'<nav aria-label="Pages">{links}</nav>{_sender(visit)}</header>'
        f'<main id="content" tabindex="-1">{stale}<h1>{escape(title)}</h1>{"".join(parts)}</main>{_footer(visit)}'
    )
    return document(title, Markup(content))


def document(title: str, body: Markup) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} – torrentdist</title>"
        '<link rel="icon" href="data:,"><link rel="stylesheet" href="/ui/assets/console.css">'
        f'<script src="/ui/assets/console.js" defer></script></head><body>{body}</body></html>'
    )


def hidden(name: str, value: str) -> Markup:
    return Markup(f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">')


def _is_here(path: str, page_path: str) -> bool:
    return path == page_path or (page_path != "/ui/" and path.startswith(page_path + "/"))


def _late(visit: Visit) -> str:
    """Returns what the page's script shows when this master has stopped updating the page."""
    links = ", ".join(link(f"{url}{visit.path}", id_) for id_, url in visit.others) or "there are none"
    said = f"{escape(visit.master)} does not answer, so this page is old. Other masters: {links}."
    return f'<p class="notice bad" role="alert" data-late hidden>{said}</p>'


def _sender(visit: Visit) -> str:
    sender = visit.sender
    who = f'<span class="who">{escape(sender.name)} ({escape(sender.role)})</span>'
    if sender.how != "session":
        return who
    return (
        f'<form class="who" method="post" action="/ui/sign-out">{hidden("form_key", visit.form_key)}'
        f"{who}<button>Sign out</button></form>"
    )


def _footer(visit: Visit) -> str:
    if visit.leads:
        leader = "which leads"
    elif visit.leader_url:
        leader = f'a standby; <a href="{escape(visit.leader_url)}{escape(visit.path)}">{escape(visit.leader)}</a> leads'
    else:
        leader = "and no leader is known"
    query = f"{visit.query}&" if visit.query else ""
    twin = f'<a href="{escape(visit.path)}?{escape(query)}format=json">This page as JSON</a>'
    return f"<footer><p>Answered by {escape(visit.master)}, {leader}. {twin}</p></footer>"
