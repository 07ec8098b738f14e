"""Variables of the environment that look like settings and are none: most likely misspelt, and otherwise unnoticed.

Not here: what the known ones mean (`options.py`).
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from deploy.options import OPTIONS

PREFIX: Final = "YUNISHARD_"

KNOWN: Final = (
    *(option.variable for option in OPTIONS.values()),
    "YUNISHARD_SETTINGS",
    "YUNISHARD_KEYS",
    "YUNISHARD_TOKEN_FILE",
)
"""All variables that `up`, the commands and the SDK read."""

_SERVICE_HOST: Final = "_SERVICE_HOST"
_OF_SERVICE: Final = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?")
"""What Kubernetes puts into each container for a service, after the service's name; `_SERVICE_HOST` is always there."""


def unknown_variables(names: Iterable[str]) -> list[str]:
    """A line for each variable that nothing reads, with the nearest known name."""
    ours = sorted(name for name in names if name.startswith(PREFIX))
    services = [name.removesuffix(_SERVICE_HOST) for name in ours if name.endswith(_SERVICE_HOST)]
    lines = []
    for name in ours:
        if name in KNOWN or any(
            name.startswith(service) and _OF_SERVICE.fullmatch(name.removeprefix(service)) for service in services
        ):
            continue
        near = get_close_matches(
            name.removeprefix(PREFIX), [one.removeprefix(PREFIX) for one in KNOWN], n=1, cutoff=0.7
        )
        advice = f"did you mean {PREFIX}{near[0]}?" if near else "`yunishard up --help` lists the settings"
        lines.append(f"{name} in the environment is unknown and ignored; {advice}")
    return lines
