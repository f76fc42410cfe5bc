"""Our client in the clothes of httpx's, as far as tests of transports need them."""

import contextlib

from assistant_runner.backends.client import Client, fields_of


class Caller:
    """`base_url` may hold no path: paths are given whole, with their query."""

    def __init__(self, transport, base_url, timeout=5.0):
        self.client = Client(transport, base_url, connect_s=timeout, read_s=timeout)

    def request(self, method, path, *, content=b"", headers=None):
        target, _, query = path.lstrip("/").partition("?")
        return self.client.request(
            method, target, query=query, headers=fields_of(headers or {}), body=content
        )

    async def get(self, path):
        return await self.client.fetch(self.request("GET", path))

    async def post(self, path, **options):
        return await self.client.fetch(self.request("POST", path, **options))

    @contextlib.asynccontextmanager
    async def stream(self, method, path):
        response = await self.client.send(self.request(method, path))
        try:
            yield response
        finally:
            await response.aclose()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        await self.client.aclose()
