"""Words that log lines and messages have in common."""


def counted(count: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "RM"), counted(0, "journal step"), counted(12_345, "byte")
    ('1 RM', '0 journal steps', '12345 bytes')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"
