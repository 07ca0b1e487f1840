"""Words counts, causes and text from outside for sentences that people read.

Always: output of `printable` cannot control a terminal, whatever the input. JSON is left alone.
Never: put a Python repr, an errno number or a bytes literal into a sentence.
"""

import os
import re

_ERRNO = re.compile(r"\[Errno (\d{1,4})\]")
MOST_SHOWN = 80
"""Characters of a line that an error shows."""


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun: 1 file, 2 files, 3 processes."""
    plural = noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")
    return f"{number:,} {noun if number == 1 else plural}"


def printable(text: str, *, keep: str = "") -> str:
    """Returns the text with every control, bidi and zero-width character escaped, except those in
    `keep`."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape", "surrogatepass").decode("ascii")
        for char in text
    )


def cause_text(exc: BaseException) -> str:
    """Describes an exception for a person, such as `/a/b: No such file or directory`. Empty if it
    has no message."""
    if isinstance(exc, OSError):
        names = [os.fsdecode(name) for name in (exc.filename, exc.filename2) if isinstance(name, str | bytes)]
        return ": ".join(filter(None, [" to ".join(names), os_sentence(exc)]))
    if isinstance(exc, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(filter(None, map(cause_text, exc.exceptions))))
    if isinstance(exc, KeyError):
        return f"{exc.args[0]} is missing" if len(exc.args) == 1 else "a key is missing"
    return str(exc)


def os_sentence(exc: BaseException) -> str:
    """Returns the system's own words for an error, without asyncio's sentence around them."""
    if not isinstance(exc, OSError):
        return str(exc)
    if exc.errno is not None and exc.errno > 0 and type(exc).__module__ == "builtins":  # others count differently
        return os.strerror(exc.errno)
    if exc.errno is None and (numbers := _ERRNO.findall(str(exc))):  # asyncio, after it has tried several addresses
        return ", ".join(dict.fromkeys(os.strerror(int(number)) for number in numbers))
    return exc.strerror or str(exc)


def toml_complaint(text: str, error: str) -> tuple[int, str]:
    """Returns the number of the line that a TOML parser's error names, and a sentence with that
    line. 0: it names none."""
    found = re.search(r"at line (\d+)", error)
    number = int(found[1]) if found else 0
    lines = text.splitlines()[number - 1 : number] if number else []
    return number, ": ".join(["is not valid TOML", error, *(line.strip()[:MOST_SHOWN] for line in lines)])
