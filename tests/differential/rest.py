"""The area of traces about REST: what another area does, and then everything that REST tells of it."""

import random
from collections.abc import Callable, Sequence
from typing import Final

from tests.differential.draft import Draft

Area = Callable[[random.Random], Draft]

CHECK_S: Final = 0.2
"""How often health is looked at."""

PASSES_S: Final = 1.5
"""Until everything that is done once in a while has been done."""


def any_of(areas: Sequence[Area], rng: random.Random) -> Draft:
    """One of the areas, and then everything that REST tells."""
    draft = rng.choice(areas)(rng)
    draft.steps[0]["register"]["extra"] = {"health.checkInterval": f"{CHECK_S}s"}
    draft.record()
    draft.sleep(PASSES_S)
    draft.add("documents")
    return draft
