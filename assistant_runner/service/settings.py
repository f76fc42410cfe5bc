"""What a service can be told."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

InterpreterMode = Literal["script", "subprocess", "off"]


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """How one service behaves. Times in seconds, sizes in bytes.

    `api_keys`: no key asks for no key; each key is a world of its own, and none sees another's objects.
    `hosts`: public names that a request may call this server by; none given: any name.
    `data_folder`: where the bytes of files lie; a folder for the life of the service when None.
    `code_interpreter`: `script` runs only code that stands in a model script (the user's own file),
    `subprocess` also what a language model wrote, `off` none.
    `context_tokens`: how much of a long thread one turn is given, by estimate.
    `model`: the engine is asked for this one, whatever a run names.
    `lease_s`: after how long without a sign of life another process takes a run over.
    """

    run_expires_s: float = 600.0
    api_keys: tuple[str, ...] = ()
    body_limit: int = 32 * 1024 * 1024
    upload_limit: int = 512 * 1024 * 1024
    cors_origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    code_interpreter: InterpreterMode = "script"
    interpreter_timeout_s: float = 30.0
    data_folder: Path | None = None
    context_tokens: int = 128_000
    tick_s: float = 0.5
    lease_s: float = 5.0
    ping_s: float = 15.0
    stop_s: float = 5.0
    model: str | None = None

    def engine_model(self, model: str) -> str:
        """The model that the engine is asked for when a run names one."""
        return self.model or model
