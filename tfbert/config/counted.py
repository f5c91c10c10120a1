"""Numbers of things in words, and how many in a second."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 example`, `2,000 examples`.

    Args:
        number: How many.
        noun: What one of them is called.
        plural: What several are called; empty: the noun with an s.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def rate_text(number: float, seconds: float = 1.0) -> str:
    """How many in a second: `1,234`, `12`; below 10 with two digits, `4`, `0.083`.

    Args:
        number: How many.
        seconds: In how much time; 0 is taken as a moment.
    """
    rate = number / max(seconds, 1e-9)
    return f"{rate:,.0f}" if rate >= 9.95 or not rate else f"{rate:.2g}"
