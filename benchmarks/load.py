"""A closed-loop HTTP load: so many connections, each with one request under way, for a bounded time.

Raw sockets on an event loop, since a client library would be slower than the server that it measures.
"""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """What a load saw. Seconds; ``latencies_s`` are sorted."""

    requests: int
    errors: int
    elapsed_s: float
    latencies_s: tuple[float, ...]

    @property
    def per_second(self) -> float:
        """Requests answered per second."""
        return self.requests / self.elapsed_s

    def percentile_s(self, share: float) -> float:
        """The latency that this share of the requests stayed within."""
        return self.latencies_s[min(len(self.latencies_s) - 1, int(share * len(self.latencies_s)))]


def request_bytes(path: str, body: object) -> bytes:
    """A POST of JSON, ready to send."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def run(port: int, make: Callable[[int], bytes], *, connections: int, seconds: float) -> Result:
    """Load the server on ``port``; ``make(i)`` is the i-th request over all connections."""
    return asyncio.run(_run(port, make, connections, seconds))


async def _run(port: int, make: Callable[[int], bytes], connections: int, seconds: float) -> Result:
    latencies: list[float] = []
    errors = number = 0
    end = time.perf_counter() + seconds

    async def worker() -> None:
        nonlocal errors, number
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (started := time.perf_counter()) < end:
            number += 1
            writer.write(make(number))
            status = await _read_status(reader)
            latencies.append(time.perf_counter() - started)
            errors += status >= 400
        writer.close()

    begun = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(connections)))
    return Result(len(latencies), errors, time.perf_counter() - begun, tuple(sorted(latencies)))


async def _read_status(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]
    await reader.readexactly(int(length))
    return int(head[9:12])
