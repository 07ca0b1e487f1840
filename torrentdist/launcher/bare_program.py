"""The command lines of the launcher's small programs: a bare Python that finds this package, and
little else.

Always: the program is one of ours, never a path from a request.
Never: import anything but the standard library.
"""

import sys
from pathlib import Path

ROOT = str(Path(__file__).parents[2])
_RUN = "import sys; sys.path.append(sys.argv.pop(1)); from {} import main; sys.exit(main(sys.argv[1:]))"


def command(module: str, *arguments: str) -> list[str]:
    """Returns the command that runs `main(arguments)` of a module.

    The program is isolated from the environment and from installed packages."""
    return [sys.executable, "-I", "-S", "-c", _RUN.format(module), ROOT, *arguments]
