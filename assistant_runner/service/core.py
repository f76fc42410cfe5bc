"""What the parts of one service share."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assistant_runner.service.engines.base import Engine
from assistant_runner.service.settings import ServiceSettings
from assistant_runner.service.shelf import Shelf
from assistant_runner.service.sse import Hub
from assistant_runner.service.store.base import Store

if TYPE_CHECKING:
    from assistant_runner.service.stores import Intake
    from assistant_runner.service.workers import Workers


@dataclass
class Core:
    """`clock`: Unix seconds with fractions."""

    store: Store
    engine: Engine
    settings: ServiceSettings
    shelf: Shelf
    clock: Callable[[], float] = time.time
    hub: Hub = field(default_factory=Hub)
    workers: "Workers" = field(init=False)
    intake: "Intake" = field(init=False)
    ready: bool = False

    def now(self) -> int:
        return int(self.clock())
