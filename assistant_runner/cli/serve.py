"""`assistant-runner serve`: the service for everybody else's programs."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assistant_runner.cli.edge import begin_work
from assistant_runner.cli.groups import Command, Integer, Number
from assistant_runner.cli.options import PATH

if TYPE_CHECKING:
    from assistant_runner.service.engines.base import Engine
    from assistant_runner.service.serving import Address


@click.command("serve", cls=Command)
@click.option("--host", default="127.0.0.1", help="Address to listen on; any but loopback needs a key.")
@click.option("--port", type=Integer(min=0, max=65535), default=8000, help="Port; 0 takes a free one.")
@click.option("--data", help="Folder for all objects and files; ':memory:' keeps nothing.")
@click.option("--engine", help="What answers: auto, responses, chat, planner or script.")
@click.option("--model", help="Ask the engine for this model, whatever model a program names.")
@click.option("--engine-base-url", help="Base URL of the engine's API.")
@click.option("--script", type=PATH, help="Model script for --engine script.")
@click.option(
    "--api-key", multiple=True, help="A key that callers may use; may be repeated, each is a world."
)
@click.option("--api-key-env", multiple=True, help="Environment variable that holds such a key.")
@click.option("--api-key-file", type=PATH, help="File with such keys, one a line, mode 0600.")
@click.option(
    "--expire-after",
    type=Number(min=0.1, max=366 * 86_400),
    help="Seconds after which an unfinished run expires; at most a year.",
)
@click.option(
    "--code-interpreter",
    default="script",
    help="Whose code may run: script (a model script's), subprocess (also a model's), off.",
)
@click.option("--cors-origin", multiple=True, help="Origin that browsers may call from; may be repeated.")
@click.option(
    "--body-limit",
    type=Integer(min=1024),
    default=32 * 1024 * 1024,
    help="Largest JSON body, in bytes.",
)
@click.option(
    "--upload-limit", type=Integer(min=1024), default=512 * 1024 * 1024, help="Largest file, in bytes."
)
@click.option("--ssl-certfile", type=PATH, help="Certificate chain (PEM): serve over https.")
@click.option("--ssl-keyfile", type=PATH, help="The certificate's key (PEM).")
@click.option("--log-level", default="info", help="debug, info (with a line per request), warning, error.")
@click.option("--json", "as_json", is_flag=True, help="Print address and engine as JSON on stdout.")
def serve(
    host: str,
    port: int,
    data: str | None,
    engine: str | None,
    model: str | None,
    engine_base_url: str | None,
    script: Path | None,
    api_key: tuple[str, ...],
    api_key_env: tuple[str, ...],
    api_key_file: Path | None,
    expire_after: float | None,
    code_interpreter: str,
    cors_origin: tuple[str, ...],
    body_limit: int,
    upload_limit: int,
    ssl_certfile: Path | None,
    ssl_keyfile: Path | None,
    log_level: str,
    as_json: bool,
) -> None:
    """Serve the Assistants API v2 to any program: change its base URL, and it works again."""
    flags = {
        "engine": engine,
        "model": model,
        "engine_base_url": engine_base_url,
        "script": None if script is None else str(script),
    }
    _serve(
        flags,
        host=host,
        port=port,
        data=data,
        keys=_keys(api_key, api_key_env, api_key_file),
        expire_after=expire_after,
        log_level=log_level,
        as_json=as_json,
        certificate=(ssl_certfile, ssl_keyfile),
        code_interpreter=code_interpreter,
        cors_origins=cors_origin,
        body_limit=body_limit,
        upload_limit=upload_limit,
    )


def _serve(
    flags: dict[str, Any],
    *,
    host: str,
    port: int,
    data: str | None,
    keys: tuple[str, ...],
    expire_after: float | None,
    log_level: str,
    as_json: bool,
    certificate: tuple[Path | None, Path | None],
    **options: Any,
) -> None:
    from assistant_runner.assembly import open_engine
    from assistant_runner.errors import UsageError
    from assistant_runner.service.serving import Certificate, run_server
    from assistant_runner.service.settings import ServiceSettings
    from assistant_runner.settings import load_settings

    for name, value, words in (
        ("--code-interpreter", options["code_interpreter"], ("script", "subprocess", "off")),
        ("--log-level", log_level, ("debug", "info", "warning", "error")),
    ):
        if value not in words:
            raise UsageError(f"{name} {value!r}: no such word", remedy=f"one of {', '.join(words)}")
    loaded = load_settings(flags, environ=os.environ, cwd=Path.cwd())
    folder = None if data == ":memory:" else Path(data) if data else loaded.folders.data
    settings = ServiceSettings(
        run_expires_s=expire_after if expire_after is not None else loaded.settings.run_expires_s,
        api_keys=keys,
        data_folder=folder,
        model=flags["model"],
        **options,
    )
    _log_to_stderr(log_level)

    def announce(address: "Address", engine: "Engine") -> None:
        label = engine.label
        if not engine.uses_model and "no language model" not in label:
            label = f"{label} (no language model)"
        lines = (
            f"Listening on {address.url}",
            f"Base URL for clients: {address.base_url}",
            f"Engine: {label}",
            f"Data: {folder or 'in memory, gone when this ends'}",
            f"Keys: {len(keys) or 'none asked (loopback only)'}",
        )
        click.echo("\n".join(lines), err=True)
        if as_json:
            document = {
                "url": address.url,
                "base_url": address.base_url,
                "port": address.port,
                "engine": engine.name,
                "uses_model": engine.uses_model,
                "data": None if folder is None else str(folder),
                "pid": os.getpid(),
            }
            click.echo(json.dumps(document))

    chain, key = certificate
    if key is not None and chain is None:
        raise UsageError("--ssl-keyfile needs --ssl-certfile", remedy="give both")
    begin_work()
    run_server(
        lambda: open_engine(loaded),
        settings,
        host=host,
        port=port,
        data=folder,
        announce=announce,
        certificate=Certificate(chain, key) if chain else None,
    )


def _keys(given: Sequence[str], variables: Sequence[str], file: Path | None) -> tuple[str, ...]:
    """All keys that callers may use; ConfigurationError for one that no header can hold."""
    from assistant_runner.errors import ConfigurationError
    from assistant_runner.keys import KeySource, key_fault

    found = [*given]
    for name in variables:
        secret = KeySource(env=name).read(os.environ)
        found += [secret.value] if secret else []
    if file is not None:
        found += _keys_of_file(file)
    for key in found:
        fault = "is empty" if not key else key_fault(key)
        if fault:
            raise ConfigurationError(f"a key for callers {fault}", remedy="letters, digits, - and _ only")
    return tuple(dict.fromkeys(found))


def _keys_of_file(path: Path) -> list[str]:
    import stat

    from assistant_runner.errors import ConfigurationError

    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"key file {path} cannot be read: {error}", remedy="correct the path"
        ) from None
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigurationError(f"key file {path} can be read by others", remedy=f"chmod 600 {path}")
    keys = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not keys:
        raise ConfigurationError(f"key file {path} holds no key", remedy="put one key a line there")
    return keys


def _log_to_stderr(level: str) -> None:
    import logging

    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s", datefmt="%Y-%m-%dT%H:%M:%S"
    )
    logging.getLogger("assistant_runner").setLevel(level.upper())
