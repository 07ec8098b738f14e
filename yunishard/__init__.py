"""The SDK of yunishard, for resource managers: `from yunishard import connect, node, application, ask`.

The public names are those of `yunishard/sdk/api.py`, which is imported when one is first used, so that a command starts
without loading the whole SDK.
"""

from importlib import import_module
from importlib.util import find_spec
from pkgutil import extend_path
from typing import TYPE_CHECKING

# A compiled engine is a folder with some packages of this one (`common/process/compiled.py`), which comes first in
# `sys.path`: what it lacks is found in the folders after it.
__path__ = extend_path(__path__, __name__)

if TYPE_CHECKING:
    from yunishard.sdk.api import *  # noqa: F403 - a type checker sees the names that a program gets, and no others
else:

    def __getattr__(name: str) -> object:
        if find_spec(f"{__name__}.{name}") is None:  # a submodule is imported without the SDK
            public = {name: value for name, value in vars(import_module("yunishard.sdk.api")).items() if name[0] != "_"}
            if name == "__all__":
                return sorted(public)
            if name in public:
                return public[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
