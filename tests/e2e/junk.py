"""Clients that name a model, a tenant, a class and an attempt that nobody knows."""

import asyncio
import json
from urllib.parse import urlsplit

CONNECTIONS = 8
AHEAD = 50  # requests of one connection that are not answered yet


def _request(number: int) -> bytes:
    body = json.dumps({"model": f"junk-{number}", "prompt": "x", "max_tokens": 1}).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: junk\r\nContent-Type: application/json\r\n"
        f"X-Surgetank-Tenant: tenant-{number}\r\nX-Surgetank-Priority: class-{number}\r\n"
        f"X-Stainless-Retry-Count: n{number}\r\nX-Request-Id: id-{number}\r\n"
        f"X-Junk-{number}: {number}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def send_junk(url: str, requests: int) -> int:
    """So many requests over a few connections; how many were answered with 404."""
    shares = [range(first, requests, CONNECTIONS) for first in range(CONNECTIONS)]
    return sum(await asyncio.gather(*(_connection(url, share) for share in shares)))


async def _connection(url: str, numbers: range) -> int:
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    found = 0
    for first in range(0, len(numbers), AHEAD):
        batch = numbers[first : first + AHEAD]
        writer.writelines(map(_request, batch))
        for _ in batch:
            head = await reader.readuntil(b"\r\n\r\n")
            found += head.startswith(b"HTTP/1.1 404 ")
            length = head.lower().split(b"content-length:")[1].split(b"\r\n")[0]
            await reader.readexactly(int(length))
    writer.close()
    await writer.wait_closed()
    return found
