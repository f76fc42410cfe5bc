"""One typed Settings out of flags, environment, project file, user file and defaults, in that order.

`load_settings` is handed the world (environment, folder) and returns the values together with where
each came from. The files are TOML: `assistant-runner.toml` in the folder, `config.toml` in the user's
config folder. A key in a config file's text is refused: secrets come from the environment, a file
with mode 0600, a keyring or a command (design, promises).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assistant_runner.errors import ConfigurationError, UsageError, near_words

PROJECT_FILE = "assistant-runner.toml"
USER_FILE = "config.toml"
ENV_PREFIX = "ASSISTANT_RUNNER_"
HOME_VARIABLE = "ASSISTANT_RUNNER_HOME"
SECRET_WORDS = ("api_key", "key", "token", "secret", "password")
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Settings(BaseModel):
    """Everything that is not one question's own. Names are those of the config files.

    `backend`: `embedded` or a URL. `engine`: `auto`, `responses`, `chat`, `planner`, `script`.
    `engine_store`: the provider keeps the turns of a run. `engine_hosted`: which of code_interpreter and
    file_search the provider runs itself (its own files and vector stores, not the service's).
    Times in seconds.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    backend: str = "embedded"
    backend_key_env: str | None = None
    backend_key_file: str | None = None
    backend_key_command: str | None = None
    backend_key_keyring: str | None = None
    backend_auth: Literal["auto", "key", "entra", "none"] = "auto"
    backend_form: Literal["auto", "openai", "azure", "foundry"] = "auto"
    backend_scope: str | None = None
    backend_headers: dict[str, str] = {}
    api_version: str | None = None
    ca_file: str | None = None
    proxy: str | None = None

    engine: str = "auto"
    engine_base_url: str | None = None
    engine_key_env: str | None = None
    engine_api_version: str | None = None
    engine_scope: str | None = None
    engine_store: bool = False
    engine_hosted: tuple[str, ...] = ()
    script: str | None = None
    model: str | None = None
    model_aliases: dict[str, str] = {}

    assistant: str | None = None
    profile: str | None = None
    tools: tuple[str, ...] | None = None
    tools_folder: str | None = None
    tools_searched_above: int = 40
    """Of more tools than this, a run is offered only the 20 that fit its prompt best."""
    offline: bool = False
    allow_hosts: tuple[str, ...] = ()
    approve: tuple[str, ...] = ()
    """Globs of tools whose calls are approved beforehand."""

    rounds: Count = 25
    timeout_s: Seconds = 600.0
    tool_timeout_s: Seconds = 60.0
    parallelism: Count = 8
    repeats: Count = 3
    bad_rounds: Count = 3
    output_cap: Count = 400_000
    run_expires_s: Count = 600
    if_active: Literal["fail", "wait", "cancel", "takeover"] = "fail"
    restart_expired: bool = False
    on_interrupt: Literal["cancel", "leave"] = "cancel"
    poll_interval_s: Seconds | None = None
    journal: bool = True
    telemetry: bool = False

    prices: dict[str, dict[str, Price]] = {}
    """By model: `input` and `output` per million tokens, in any one currency."""

    data_folder: str | None = None
    state_folder: str | None = None


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, the origin of every field (`flag`, `environment NAME`, a file's path, `default`),
    and the environment they were read from."""

    settings: Settings
    origins: Mapping[str, str]
    environ: Mapping[str, str]
    folders: "Folders"


@dataclass(frozen=True, slots=True)
class Folders:
    """Where things lie. `ASSISTANT_RUNNER_HOME` moves them all under one folder."""

    config: Path
    data: Path
    state: Path
    cache: Path


def find_folders(environ: Mapping[str, str]) -> Folders:
    """The user's folders by the platform's custom, or all under `ASSISTANT_RUNNER_HOME`."""
    home = environ.get(HOME_VARIABLE)
    if home:
        try:
            root = Path(home).expanduser()
        except RuntimeError as error:
            raise ConfigurationError(
                f"environment {HOME_VARIABLE}: {home}: {error}", remedy="give a folder's whole path"
            ) from None
        return Folders(root / "config", root / "data", root / "state", root / "cache")
    import platformdirs

    dirs = platformdirs.PlatformDirs("assistant-runner", appauthor=False)
    return Folders(dirs.user_config_path, dirs.user_data_path, dirs.user_state_path, dirs.user_cache_path)


def load_settings(
    flags: Mapping[str, Any],
    *,
    environ: Mapping[str, str],
    cwd: Path,
    assistant_file: tuple[str, Mapping[str, Any]] | None = None,
) -> LoadedSettings:
    """Settings with their origins; ConfigurationError names file, line, key and the nearest right key.

    `flags`: what the command line gave; None means not given. `assistant_file`: the name of an assistant
    file and what it says in the words of Settings (`AssistantSpec.settings_layer()`); it lies over the
    project file and under the environment. A variable that is set to nothing counts as not set.
    """
    folders = find_folders(environ)
    layers: list[tuple[str, Mapping[str, Any]]] = []
    for path in (folders.config / USER_FILE, cwd / PROJECT_FILE):
        layers.append((str(path), _read_file(path)))
    if assistant_file:
        layers.append(assistant_file)
    for name, field in Settings.model_fields.items():
        if environ.get(f"{ENV_PREFIX}{name.upper()}") and not _is_plain(field.annotation):
            raise ConfigurationError(
                f"environment {ENV_PREFIX}{name.upper()}: {name} is a list or table, which no variable holds",
                remedy=f"write {name} into {PROJECT_FILE} or {folders.config / USER_FILE}",
                key=name,
            )
    layers.extend(
        (f"environment {ENV_PREFIX}{name.upper()}", {name: environ[f"{ENV_PREFIX}{name.upper()}"]})
        for name in Settings.model_fields
        if environ.get(f"{ENV_PREFIX}{name.upper()}")
    )
    layers.append(("flag", {name: value for name, value in flags.items() if value is not None}))

    values: dict[str, Any] = {}
    origins = dict.fromkeys(Settings.model_fields, "default")
    for origin, layer in layers:
        values.update(layer)
        origins.update(dict.fromkeys(layer, origin))
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise _invalid(error, origins) from None
    if settings.data_folder:
        folders = Folders(folders.config, Path(settings.data_folder), folders.state, folders.cache)
    if settings.state_folder:
        folders = Folders(folders.config, folders.data, Path(settings.state_folder), folders.cache)
    return LoadedSettings(settings, origins, environ, folders)


def _invalid(error: ValidationError, origins: Mapping[str, str]) -> ConfigurationError:
    """What is wrong with the first value that does not fit, where it stands; UsageError for a flag's."""
    first = error.errors()[0]
    key = str(first["loc"][0]) if first["loc"] else "?"
    place = ".".join(str(part) for part in first["loc"])
    words = str(first["msg"]).replace("valid tuple", "list").replace("valid dictionary", "table")
    words = f"{words} (got {first['input']!r})"
    origin = origins.get(key, "settings")
    if origin == "flag":
        flag = "--" + key.removesuffix("_s").replace("_", "-")
        return UsageError(f"{flag}: {words}", remedy=f"correct {flag}", key=key)
    return ConfigurationError(f"{origin}: {place}: {words}", remedy=f"correct {key}", key=key)


def lay_assistant_file(
    loaded: LoadedSettings, name: str, layer: Mapping[str, Any], *, secrets: Mapping[str, str] | None = None
) -> LoadedSettings:
    """Settings with what an assistant file says put over the files and under environment and flags.

    For callers that find the file only after the settings; `layer` as `load_settings` takes it. `secrets`:
    keys that the file took from variables, under the names by which the layer speaks of them.
    """
    free = {
        key: value
        for key, value in layer.items()
        if not (loaded.origins[key] == "flag" or loaded.origins[key].startswith("environment "))
    }
    values = {**loaded.settings.model_dump(), **free}
    return LoadedSettings(
        Settings.model_validate(values),
        {**loaded.origins, **dict.fromkeys(free, name)},
        {**loaded.environ, **secrets} if secrets else loaded.environ,
        loaded.folders,
    )


def _is_plain(annotation: Any) -> bool:
    """Only single values are read from the environment; lists and maps are for files."""
    return "tuple" not in str(annotation) and "dict" not in str(annotation)


def _read_file(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    import tomllib

    try:
        text = path.read_text(encoding="utf-8-sig")
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(
            f"{path}: cannot be read: {error}", remedy=f"correct or remove {path}"
        ) from None
    problems = [
        f"{path}:{_line_of(key, text)}: {_say_unknown(key)}"
        for key in document
        if key not in Settings.model_fields
    ]
    if problems:
        raise ConfigurationError(
            "\n".join(problems),
            remedy="correct the keys; secrets stay out of the file: name the variable that holds one"
            " (backend_key_env, engine_key_env)",
            key=next(key for key in document if key not in Settings.model_fields),
        )
    return document


def _say_unknown(key: str) -> str:
    if key in SECRET_WORDS:
        return f"{key}: secrets are not read from config text"
    near = near_words(key, Settings.model_fields)
    return f"unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def _line_of(key: str, text: str) -> int:
    """The line where a top-level key or table is written; 1 if it is written in an unusual way."""
    pattern = re.compile(rf"""\s*\[*\s*["']?{re.escape(key)}["']?\s*[=.\]]""")
    return next((number for number, line in enumerate(text.splitlines(), 1) if pattern.match(line)), 1)
