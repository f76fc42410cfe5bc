"""What both SDK engines share: the open client, the model that is meant, the tries of a turn."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypedDict

import httpx2

from assistant_runner.masking import mask
from assistant_runner.service.engines.base import EngineError, TurnEvent, TurnRequest
from assistant_runner.service.engines.client import TokenSource, open_client, with_retries
from assistant_runner.service.engines.naming import ModelNames
from assistant_runner.service.engines.providers import Provider

LONGEST_S = 600.0
CONNECT_S = 10.0

Try = Callable[[TurnRequest, str, frozenset[str]], AsyncGenerator[TurnEvent, None]]
"""One try of a turn: the request, the model's id, the parameters to leave out."""


class AskerOptions(TypedDict, total=False):
    """What an engine passes on: the model's names, and the seams of tests."""

    names: ModelNames | None
    transport: httpx2.AsyncBaseTransport | None
    token_source: TokenSource | None
    sleep: Callable[[float], Awaitable[None]]


class Asker:
    """A provider that can be asked; closed with the engine."""

    def __init__(
        self,
        provider: Provider,
        *,
        names: ModelNames | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
        token_source: TokenSource | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.endpoint = provider.endpoint
        self.names = names or ModelNames(provider.endpoint)
        self.client = open_client(provider, transport=transport, token_source=token_source)
        self._secrets = [provider.key] if provider.key else []
        self._sleep = sleep

    def label(self, api: str) -> str:
        """For people: which API at which host, and the model if one is settled."""
        return f"{api} at {self.endpoint.site}{self.names.shown()}"

    async def ask(self, request: TurnRequest, once: Try) -> AsyncIterator[TurnEvent]:
        """The events of a turn: what is to be said of its model, then the tries."""
        model = self.names.resolve(request.model)
        if request.turn == 0:
            for notice in self.names.check(model):
                yield notice
        async for event in with_retries(
            lambda dropped: once(request, model, dropped),
            endpoint=self.endpoint,
            model=model,
            deadline_s=request.deadline_s,
            secrets=self._secrets,
            sleep=self._sleep,
        ):
            yield event

    async def models(self, supports: Mapping[str, bool]) -> Sequence[Mapping[str, Any]]:
        """The server's models (see ModelNames.list_models); EngineError."""
        try:
            return await self.names.list_models(self.client, supports)
        except EngineError as error:
            error.message = mask(error.message, self._secrets)
            raise

    async def aclose(self) -> None:
        await self.client.close()


def timeout_of(request: TurnRequest) -> httpx2.Timeout:
    """How long a server may be silent: as long as the run may take."""
    return httpx2.Timeout(request.deadline_s or LONGEST_S, connect=CONNECT_S)
