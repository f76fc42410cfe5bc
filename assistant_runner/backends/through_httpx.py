"""httpx as a transport: it knows proxies, and it is there where our pool's parser is not.

Imported only where it is used: httpx takes a tenth of a second to import, and more time for each
request than everything else that a request takes.
"""

from typing import Self

import httpx

from assistant_runner.backends import transport
from assistant_runner.backends.transport import HttpError, Request, Response


class HttpxTransport:
    """Owns the client. Its authentication, base URL, default headers and cookies are not used."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def send(self, request: Request, connect_s: float | None, read_s: float | None) -> Response:
        sent = httpx.Request(
            request.method,
            request.url,
            headers=list(request.headers.values()),
            content=request.body,
            extensions={"timeout": httpx.Timeout(read_s, connect=connect_s).as_dict()},
        )
        try:
            answer = await self._client.send(sent, stream=True)
        except httpx.HTTPError as error:
            raise _ours(error) from error
        headers = [field for field in answer.headers.raw if field[0].lower() != b"content-encoding"]
        return Response(request, answer.status_code, headers, _Pieces(answer), answer.aclose)

    async def aclose(self) -> None:
        await self._client.aclose()


class _Pieces:
    """The body's pieces, decoded by httpx."""

    def __init__(self, answer: httpx.Response) -> None:
        self._pieces = answer.aiter_bytes()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._pieces)
        except httpx.HTTPError as error:
            raise _ours(error) from error


def _ours(error: httpx.HTTPError) -> HttpError:
    """The same in the room's words: our classes have the names of httpx's."""
    for kind in type(error).__mro__:
        own = getattr(transport, kind.__name__, None)
        if isinstance(own, type) and issubclass(own, HttpError):
            return own(str(error))
    return HttpError(str(error))
