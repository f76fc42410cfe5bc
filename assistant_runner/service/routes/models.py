"""Models: those that the engine can reach (reference, section 2)."""

from typing import Any

from assistant_runner.service.engines.base import EngineError
from assistant_runner.service.failures import ApiError
from assistant_runner.service.store.base import Document
from assistant_runner.service.web import Answer, Call


async def _known(call: Call) -> dict[str, Document]:
    try:
        found = await call.core.engine.models()
    except EngineError as error:
        raise ApiError(503, f"The models cannot be listed: {error.message}", type="server_error") from None
    return {model["id"]: _shown(dict(model)) for model in found}


def _shown(model: dict[str, Any]) -> Document:
    return {
        "id": model["id"],
        "object": "model",
        "created": model.get("created") or 0,
        "owned_by": model.get("owned_by") or "assistant-runner",
        **{key: value for key, value in model.items() if key not in ("id", "object", "created", "owned_by")},
    }


async def list_all(call: Call) -> Answer:
    return Answer({"object": "list", "data": list((await _known(call)).values())})


async def retrieve(call: Call) -> Answer:
    name = call.path["model"]
    found = (await _known(call)).get(name)
    if found is None:
        raise _no_model(name)
    return Answer(found)


async def delete(call: Call) -> Answer:
    """Nothing here was fine-tuned, so nothing can be deleted; said in words."""
    name = call.path["model"]
    if name not in await _known(call):
        raise _no_model(name)
    raise ApiError(
        400,
        f"The model '{name[:80]}' cannot be deleted: it is the engine's, not this server's.",
        param="model",
    )


def _no_model(name: str) -> ApiError:
    return ApiError(404, f"The model '{name[:80]}' does not exist.", code="model_not_found", param="model")
