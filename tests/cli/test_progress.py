from assistant_runner.cli.progress import Progress
from assistant_runner.run.events import RunEnded, Warned


async def test_a_warning_is_said_once_as_event_and_with_the_result(capsys):
    progress = Progress(quiet=False)

    await progress.listen(Warned("the backend is slow"))
    progress.note("the backend is slow")

    assert capsys.readouterr().err == "note: the backend is slow\n"


async def test_where_things_stand_after_an_interrupt_is_said_even_when_quiet(capsys):
    error = {
        "kind": "interrupted",
        "message": "interrupted; run run_1 is cancelled",
        "remedy": "go on with: x",
    }

    await Progress(quiet=True).listen(RunEnded("run_1", "thread_1", "cancelled", error))

    assert capsys.readouterr().err == "interrupted; run run_1 is cancelled; go on with: x\n"
