"""The model that is meant: aliases, the default, retired names; and the list of what can be reached."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

import openai
from openai import AsyncOpenAI

from assistant_runner.endpoints import Endpoint
from assistant_runner.service.engines.base import EngineError, Notice
from assistant_runner.service.engines.catalog import retirement_of, supports_tools
from assistant_runner.service.engines.client import translate


def _today() -> date:
    return datetime.now(UTC).date()


@dataclass(frozen=True, slots=True)
class ModelNames:
    """`aliases` of the config; `default` for a run that names no model; `today` for tests."""

    endpoint: Endpoint
    aliases: Mapping[str, str] = field(default_factory=dict)
    default: str | None = None
    today: date = field(default_factory=_today)

    def resolve(self, model: str) -> str:
        """The id to send: aliases followed once, no name at all becomes the default."""
        if model in {"", "default"} and self.default:
            model = self.default
        return self.aliases.get(model, model)

    def shown(self) -> str:
        """For labels: the default model, or that this is Azure, where only deployments have names."""
        if self.default:
            return f" ({self.default})"
        return " (Azure)" if self.endpoint.kind == "azure" else ""

    def check(self, model: str) -> Iterator[Notice]:
        """A Notice for a model of OpenAI that will leave, EngineError for one that has left."""
        if self.endpoint.kind != "openai":
            return
        retirement = retirement_of(model)
        if retirement is None:
            return
        words = retirement.words(self.today)
        if self.today >= retirement.day:
            raise EngineError("invalid_prompt", words, kind="model_retired")
        yield Notice(words)

    async def list_models(
        self, client: AsyncOpenAI, supports: Mapping[str, bool]
    ) -> Sequence[Mapping[str, Any]]:
        """The server's models as wire objects with `supports.tools` where known; EngineError."""
        try:
            page = await client.models.list(timeout=15.0)
        except openai.OpenAIError as error:
            raise translate(error, endpoint=self.endpoint, model="").error from error
        found = []
        for model in page.data or ():
            document = model.model_dump(mode="json", exclude_none=True)
            known = supports.get(model.id, supports_tools(model.id))
            found.append({**document, "supports": {"tools": known}} | self._leaving(model.id, document))
        return found

    def _leaving(self, model: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """`shutdown_date` as the server gives it, else from our table for OpenAI's own models."""
        if document.get("shutdown_date") or self.endpoint.kind != "openai":
            return {}
        retirement = retirement_of(model)
        return {} if retirement is None else {"shutdown_date": retirement.day.isoformat()}
