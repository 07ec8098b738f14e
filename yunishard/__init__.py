"""The SDK of yunishard, for resource managers: `from yunishard import connect, node, application, ask`.

The public names are those of `yunishard/api.py`, which is imported when one is first used, so that a command starts
without loading the whole SDK.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from yunishard.api import *  # noqa: F403 - a type checker sees the names that a program gets


def __getattr__(name: str) -> object:
    if find_spec(f"{__name__}.{name}") is None:  # a submodule is imported without the SDK
        public = {name: value for name, value in vars(import_module("yunishard.api")).items() if name[0] != "_"}
        if name == "__all__":
            return sorted(public)
        if name in public:
            return public[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
