"""Numbers for people: ``1.2 MB``, ``35 µs``, ``99.3 %``. Decimal prefixes throughout."""

from __future__ import annotations

_LARGE = ("", "k", "M", "G", "T", "P", "E")


def _scaled(value: float) -> tuple[float, str]:
    """Return ``value`` and its prefix so that three digits show it."""
    scaled, index = value, 0
    # From here on three digits would round to 1000 of the smaller prefix.
    while abs(scaled) >= 999.5 and index < len(_LARGE) - 1:
        scaled, index = scaled / 1000, index + 1
    return scaled, _LARGE[index]


def _digits(value: float) -> str:
    """Return about two or three significant digits: ``1.2``, ``35``, ``416``."""
    # What rounds to 10.0 has three digits already.
    return f"{value:.1f}" if abs(value) < 9.95 else f"{value:.0f}"


def byte_text(count: int) -> str:
    """Return a size, as ``1.2 MB``; below 1 kB exactly, as ``512 B``."""
    scaled, prefix = _scaled(count)
    return f"{_digits(scaled)} {prefix}B" if prefix else f"{count} B"


def flop_text(count: int) -> str:
    """Return a number of floating-point operations, as ``8.2 GFLOP``."""
    scaled, prefix = _scaled(count)
    return f"{_digits(scaled)} {prefix}FLOP" if prefix else f"{count} FLOP"


def second_text(seconds: float, *, closely: bool = False) -> str:
    """Return a duration, as ``35 µs``.

    Args:
        seconds: The duration.
        closely: Whether four digits are shown, as ``35.21 µs``, for times that differ by little.
    """
    if not seconds:
        return "0 s"
    # The first unit in which the digits that are shown do not round to 1000.
    for factor, unit in ((1e9, "ns"), (1e6, "µs"), (1e3, "ms")):
        if abs(seconds) * factor < (999.95 if closely else 999.5):
            return f"{_few_digits(seconds * factor, closely)} {unit}"
    return f"{_few_digits(seconds, closely)} s"


def _few_digits(value: float, closely: bool) -> str:
    return f"{value:#.4g}" if closely and abs(value) < 9999.5 else _digits(value)


def percent_text(part: int, whole: int) -> str:
    """Return a share, as ``99.3 %``; only the whole is ``100 %``, only nothing is ``0 %``."""
    if part in (0, whole):
        return "100 %" if part else "0 %"
    # One node of thousands on the CPU must not be rounded away: that is what the share is read for.
    return f"{min(max(part / whole * 100, 0.1), 99.9):.1f} %"


def count_text(count: int, singular: str, plural: str = "") -> str:
    """Return ``1 node``, ``2 nodes``; thousands are set apart as in ``12,345 nodes``."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def shape_text(shape: tuple[int | str | None, ...] | None) -> str:
    """Return a shape, as ``[batch, 3, ?]``; ``[...]`` where the rank is unknown."""
    if shape is None:
        return "[...]"
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def printable(text: str) -> str:
    """Return ``text`` with control and unencodable characters escaped.

    Names come from files that others made: a terminal must not obey them.
    """
    # Nearly all texts are: no look at every character of these.
    if text.isprintable():
        return text
    return "".join(
        # Escaped, not left out: two names that differ must not look the same.
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def rate_text(rate: float, unit: str) -> str:
    """Return a rate, as ``1.6 TB/s``."""
    scaled, prefix = _scaled(rate)
    return f"{_digits(scaled)} {prefix}{unit}"


def figure_text(value: float, unit: str) -> str:
    """Return a hardware figure in ``s``, ``bytes``, ``bytes/s``, ``yes or no``, or any other unit."""
    if unit == "s":
        return second_text(value)
    # A flag is a figure like the others of a target: 1 stands for yes.
    if unit == "yes or no":
        return "yes" if value else "no"
    if unit in ("bytes", "bytes/s"):
        return rate_text(value, unit.replace("bytes", "B"))
    scaled, prefix = _scaled(value)
    return f"{_digits(scaled)} {prefix}{' ' if prefix else ''}{unit}".rstrip()


def number_text(value: float | None) -> str:
    """Return a value of a tensor in a few digits; ``-`` where there is none."""
    return "-" if value is None else f"{value:.4g}"
