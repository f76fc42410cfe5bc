"""From settings to something that answers questions: backend, engine, tools and driver put together.

The one place that chooses. `cli/` and `batch/` call it and decide nothing; a library user may too.
It stands between `setup/` and `batch/` in the order of imports.
"""

from assistant_runner.assembly.opening import open_backend, open_engine, open_runner, service_settings
from assistant_runner.assembly.question import Question, limits_of
from assistant_runner.assembly.runner import AssembledRunner, Runner, answers_of, recorded

__all__ = [
    "AssembledRunner",
    "Question",
    "Runner",
    "answers_of",
    "limits_of",
    "open_backend",
    "open_engine",
    "open_runner",
    "recorded",
    "service_settings",
]
