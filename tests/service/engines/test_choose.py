"""Which engine thinks."""

import pytest

from assistant_runner.errors import ConfigurationError, UsageError
from assistant_runner.service.engines.choose import choose_engine


async def test_the_planner_is_what_is_left():
    engine = await choose_engine("auto", environ={}, offline=True)

    assert (engine.name, engine.uses_model) == ("planner", False)


async def test_an_unknown_engine_is_a_usage_error():
    with pytest.raises(UsageError, match="'gpt'"):
        await choose_engine("gpt", environ={})


async def test_a_script_engine_needs_a_script():
    with pytest.raises(ConfigurationError, match="needs a script"):
        await choose_engine("script", environ={})
