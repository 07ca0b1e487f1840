"""Axes of a chart: where the ticks are, and their labels.

Always: an axis starts at zero, ends at or above the largest value, and has a single unit.
"""

import math
from collections.abc import Callable

from torrentdist.charts.quantities import BINARY_UNITS, HOURS_FROM, MINUTES_FROM, count, percent, seconds, size


def ticks(most: float, wanted: int = 5, *, whole: bool = False) -> list[float]:
    """Returns about `wanted` round numbers from 0 to just above `most`. `whole`: no fractions."""
    if most <= 0:
        return [0.0, 1.0]
    rough = max(1.0, most / wanted) if whole else most / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    factors = (1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10)
    step = next(factor * power for factor in factors if factor * power >= rough * 0.999)
    return [step * n for n in range(math.ceil(most / step - 1e-9) + 1)]


def axis(most: float, form: Callable[[float], str], wanted: int = 5) -> list[tuple[float, str]]:
    """Returns each tick's value and label. All labels have the unit of the largest value."""
    unit, name = _unit(most, form)
    return [(unit * value, f"{value:,.6g}{name}") for value in ticks(most / unit, wanted, whole=form is count)]


def _unit(most: float, form: Callable[[float], str]) -> tuple[float, str]:
    """Returns the value of one unit, and its name."""
    if form is seconds:
        return (3600.0, " h") if most >= HOURS_FROM else (60.0, " min") if most >= MINUTES_FROM else (1.0, " s")
    if form is size:
        power = min(5, max(0, math.floor(math.log(most, 1024)))) if most >= 1 else 0
        return 1024.0**power, " " + BINARY_UNITS[power]
    return (0.01, "%") if form is percent else (1.0, "")
