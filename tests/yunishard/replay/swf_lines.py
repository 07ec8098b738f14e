"""Lines of the Standard Workload Format that show only what matters."""

from io import BytesIO

from yunishard.workloads.replay.workload import Log, parse_log


def swf_line(
    number: int,
    *,
    submit: int = 0,
    run: int = 60,
    processors: int = 1,
    memory: int = -1,
    requested: int = -1,
    status: int = 1,
    user: int = 1,
    group: int = 1,
    site: int = 1,
) -> str:
    return (
        f"{number} {submit} -1 {run} {processors} -1 {memory} {requested} -1 -1 "
        f"{status} {user} {group} -1 -1 {site} -1 -1"
    )


def swf_log(*lines: str) -> Log:
    """The log of these lines, none of which is malformed."""
    return parse_log(BytesIO("\n".join(lines).encode()), strict=True)
