"""The models that can be reached from here, by every engine there is."""

from collections.abc import Mapping, Sequence
from typing import Any

from assistant_runner.endpoints import normalise_endpoint
from assistant_runner.errors import NotFound, near_words
from assistant_runner.service.engines.base import Engine, EngineError
from assistant_runner.service.engines.catalog import retirement_of, supports_tools
from assistant_runner.service.engines.choose import unreachable
from assistant_runner.service.engines.discovery import USUAL_PORTS, find_local_servers
from assistant_runner.service.engines.planner import PlannerEngine

Row = dict[str, Any]


async def list_reachable(
    chosen: Engine, *, offline: bool = False, ports: Mapping[int, str] = USUAL_PORTS
) -> list[Row]:
    """Rows `{id, engine, at, supports: {tools}, chosen, shutdown_date?}`: the chosen engine's models,
    those of local servers, the planner. BackendUnreachable or AuthenticationFailed if the chosen one
    cannot be asked."""
    rows = await _rows_of(chosen, chosen=True)
    if not offline:
        for server in await find_local_servers(ports):
            at = normalise_endpoint(server.base_url).base_url
            rows += [
                {
                    "id": model,
                    "engine": "chat",
                    "at": f"{server.maker} at {at}",
                    "supports": {"tools": server.supports.get(model, supports_tools(model))},
                    "chosen": False,
                }
                for model in server.models
                if not any(row["id"] == model and at.split("/")[2].split(":")[0] in row["at"] for row in rows)
            ]
    if chosen.name != "planner":
        rows += await _rows_of(PlannerEngine(), chosen=False)
    return rows


async def _rows_of(engine: Engine, *, chosen: bool) -> list[Row]:
    try:
        models = await engine.models()
    except EngineError as error:
        raise unreachable(error) from error
    default = getattr(engine, "default_model", None)
    rows = []
    for model in models:
        row: Row = {
            "id": model["id"],
            "engine": engine.name,
            "at": engine.label,
            "supports": {"tools": (model.get("supports") or {}).get("tools")},
            "chosen": chosen and (default is None or default == model["id"]),
        }
        if model.get("shutdown_date"):
            row["shutdown_date"] = model["shutdown_date"]
        rows.append(row)
    return rows


async def find_model(name: str, rows: Sequence[Row], aliases: Mapping[str, str]) -> Row:
    """The row of a model or alias, reachable or known by name; NotFound with the nearest names."""
    resolved = aliases.get(name, name)
    for row in rows:
        if row["id"] == resolved:
            return {**row, "reachable": True} | ({"alias": name} if name != resolved else {})
    tools, retirement = supports_tools(resolved), retirement_of(resolved)
    if tools is not None or retirement is not None:
        known: Row = {"id": resolved, "supports": {"tools": tools}, "reachable": False}
        if retirement is not None:
            known |= {"shutdown_date": retirement.day.isoformat(), "instead": retirement.instead}
        return known
    near = near_words(resolved, [str(row["id"]) for row in rows], count=3)
    raise NotFound(
        f"no model {resolved!r} can be reached",
        status_code=404,
        remedy=f"did you mean {', '.join(near)}?" if near else "assistant-runner models lists what there is",
    )
