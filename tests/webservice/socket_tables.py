"""Lines of the kernel's table of connections, as it writes them."""

import ipaddress
import sys

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"


def line(
    local: tuple[str, int], remote: tuple[str, int], *, uid: int = 1000, state: str = "01", inode: int = 4711
) -> str:
    ends = f"{_written(*local)} {_written(*remote)}"
    return f"   1: {ends} {state} 00000000:00000000 00:00000000 00000000 {uid:5} {0:8} {inode} 1 0000000000000000"


def _written(address: str, port: int) -> str:
    packed = ipaddress.ip_address(address).packed
    words = [int.from_bytes(packed[start : start + 4], sys.byteorder) for start in range(0, len(packed), 4)]
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
