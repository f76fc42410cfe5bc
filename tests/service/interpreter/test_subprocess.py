"""Code runs in a process of its own, with limits and a deadline."""

from pathlib import Path

import pytest

from assistant_runner.service.interpreter.subprocess import OUTPUT_LIMIT, interpret


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("print(6*7)", "42\n"),
        ("6*7", "42\n"),
        ("x = 1", ""),
        ("'text'", "text\n"),
        ("print('é 北')", "é 北\n"),
        ("None", ""),
    ],
)
async def test_what_the_code_prints_is_its_log(code: str, expected: str):
    assert (await interpret(code)).logs == expected


@pytest.mark.parametrize(
    ("code", "words"),
    [("1/0", "ZeroDivisionError"), ("def", "SyntaxError"), ("print('a'); raise KeyError('b')", "KeyError")],
)
async def test_an_error_of_the_code_is_part_of_the_log(code: str, words: str):
    log = (await interpret(code)).logs

    assert words in log
    assert "exec(compile" not in log


async def test_code_that_does_not_end_is_stopped():
    assert "stopped after 0.5 seconds" in (await interpret("while True: pass", timeout_s=0.5)).logs


async def test_code_ends_by_itself_when_nobody_is_left_to_stop_it():
    """Its alarm is set a little after the deadline that we keep."""
    outcome = await interpret("import signal; print(signal.alarm(0))", timeout_s=20)

    assert 20 <= int(outcome.logs) <= 22


async def test_endless_output_is_cut():
    log = (await interpret("print('x' * 5_000_000)")).logs

    assert len(log) < OUTPUT_LIMIT + 100
    assert log.endswith("bytes]")


async def test_the_code_sees_its_files_and_not_our_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    (tmp_path / "kept").write_text("1,2,3")
    code = "import os; print(open('numbers.csv').read(), os.environ.get('OPENAI_API_KEY'))"

    log = (await interpret(code, files=[("../numbers.csv", tmp_path / "kept")])).logs

    assert log == "1,2,3 None\n"


async def test_memory_is_limited():
    assert "MemoryError" in (await interpret("x = bytearray(3 * 1024**3)")).logs


async def test_files_that_the_code_makes_are_given_back(tmp_path: Path):
    (tmp_path / "kept").write_text("1")
    code = "open('/mnt/data/out.csv', 'w').write('a,b'); print(open('/mnt/data/in.csv').read())"

    outcome = await interpret(code, files=[("in.csv", tmp_path / "kept")])

    assert outcome.made == (("out.csv", b"a,b"),)
    assert outcome.logs == "1\n"


async def test_a_link_out_of_the_folder_is_not_followed():
    outcome = await interpret("import os; os.symlink('/etc/passwd', 'stolen')")

    assert outcome.made == ()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("..", "file"),
        ("../../etc/passwd", "passwd"),
        ("é" * 300 + ".csv", "é" * 100 + ".csv"),
        ("nul\0and\nline.txt", "nulandline.txt"),
        (".hidden", ".hidden"),
    ],
    ids=["dots", "path", "long", "control characters", "hidden"],
)
async def test_a_file_of_any_name_lies_in_the_folder(tmp_path: Path, name: str, shown: str):
    kept = tmp_path / "kept"
    kept.write_text("words")

    outcome = await interpret(
        "import os; print([(n, open(n).read()) for n in os.listdir()])", files=[(name, kept)]
    )

    assert outcome.logs == f"{[(shown, 'words')]}\n"


async def test_files_of_one_name_lie_beside_each_other(tmp_path: Path):
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")

    outcome = await interpret(
        "print(open('n.csv').read(), open('n (2).csv').read())",
        files=[("n.csv", tmp_path / "a"), ("n.csv", tmp_path / "b")],
    )

    assert outcome.logs == "1 2\n"
