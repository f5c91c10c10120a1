"""Numbers of things in words."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 example`, `2,000 examples`.

    Args:
        number: How many.
        noun: What one of them is called.
        plural: What several are called; empty: the noun with an s.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
