import asyncio
from mmap import PAGESIZE, mmap

from common.process_limits import MemoryLimit, resident_bytes


def test_who_uses_too_much_hears_it_once() -> None:
    async def story() -> list[int]:
        heard: list[int] = []
        done = asyncio.Event()
        uses = iter((10, 100, 101))

        def exceeded(used: int) -> None:
            heard.append(used)
            done.set()

        limit = MemoryLimit(100, exceeded, used_bytes=lambda: next(uses), look_every_s=0.001)
        async with asyncio.timeout(10):
            await done.wait()
        limit.close()
        return heard

    assert asyncio.run(story()) == [101]


def test_a_process_sees_what_it_takes() -> None:
    size = 64 << 20
    before = resident_bytes()
    with mmap(-1, size) as taken:  # from the system: an allocator may give again what it has kept
        for place in range(0, size, PAGESIZE):
            taken[place] = 1  # memory is only taken when it is used
        assert resident_bytes() - before >= size // 2
