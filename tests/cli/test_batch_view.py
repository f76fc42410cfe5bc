import io

import pytest
from rich.console import Console

from assistant_runner.cli.batch_view import LiveTalk

PROGRESS = {
    **{
        "state": "running",
        "total": 10,
        "done": 3,
        "failed": 1,
        "unpassed": 0,
        "paused": 0,
        "left": 0,
        "running": 2,
    },
    **{"limit": 4, "rows_per_s": 1.5, "tokens": 30, "cost": None, "refused": 0, "left_s": 5.0},
}


@pytest.mark.parametrize("width", [40, 110])
def test_the_live_view_shows_the_bar_and_says_where_the_batch_stands(width):
    screen = io.StringIO()
    talk = LiveTalk(Console(file=screen, force_terminal=True, width=width, color_system=None))

    talk.tell(PROGRESS)
    talk.close()

    shown = " ".join(screen.getvalue().split())
    assert "━" in shown
    assert "3 of 10 rows, 1 failed, 2 running" in shown
    assert "5 s left" in shown
