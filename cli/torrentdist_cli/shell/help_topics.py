"""Texts that concern all commands, for `torrentdist help TOPIC` and the generated pages."""

EXIT_CODES = {
    0: "ok",
    1: "a bug of ours",
    2: "usage or configuration",
    3: "not found",
    4: "not allowed",
    5: "unavailable, a retry may help",
    6: "timed out, progress kept",
    7: "content does not match its digest",
    8: "disk full or no permission",
    9: "conflict: other content under the id, or in use",
    10: "partly done: fewer replicas or hosts than wanted",
    130: "ended by Ctrl-C",
    141: "whoever read the output stopped reading",
    143: "ended by SIGTERM",
}

INTRODUCTION = """\
Data goes to stdout; progress, logs and errors to stderr. An error reads `error[code]: what happened`, its cause if
there is one, then `hint: what to do`, whatever `-o` says; stdout then holds nothing, or the whole of what was done.
[errors.md](errors.md) lists every code.

The options of every command may stand before or after its name; said twice, the last one counts. `-q` prints the one
useful value; together with `-o` it prints the data in that format and leaves out progress only. `-o json` prints one
value, `-o jsonl` a line for each item of a list. Sizes are human in tables and bytes in JSON.

Durations are written `90`, `90s`, `5m`, `1h30m` or `7d`; shares `100%`, `0.5` or `0`.

The first Ctrl-C stops cleanly and says how to go on; the second stops at once."""

LAYERS = """\
Each place is laid over the one before it, key by key; a list or a table is replaced whole.

1. the defaults below
2. `/etc/torrentdist/torrentdist.toml`
3. `torrentdist/torrentdist.toml` in `$XDG_CONFIG_HOME`, or in `~/.config`
4. `./torrentdist.toml`
5. the file named by `--config`, or else by `TORRENTDIST_CONFIG`
6. variables: `TORRENTDIST_<SECTION>_<KEY>`
7. flags, such as `--masters`

`torrentdist config show --origin` prints what holds, and where each value comes from. Unknown keys and variables are
errors. In a variable a list is written `a,b`, a table `k=v,k=v` or as JSON. A key that ends in `_file` names a file
that holds a secret, and that nobody but its owner may read."""

TOPICS = {
    "exit-codes": "\n".join(f"{code:>3}  {meaning}" for code, meaning in EXIT_CODES.items()),
    "config": LAYERS,
    "formats": INTRODUCTION,
}
"""The topics of `torrentdist help`, with their texts."""
