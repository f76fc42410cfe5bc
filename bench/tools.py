"""The tool kit's promises: parallel calls, HTML to text, loading many modules, the gate's own cost.

usage: python bench/tools.py

Prints what each costs beside what it may cost. HTML is measured in CPU time of this process, so that a
shared machine does not blur it; everything else is wall time, best of several.
"""

import asyncio
import functools
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from assistant_runner.tooling.contract import ToolContext
from assistant_runner.tooling.encoding import encode
from assistant_runner.tooling.gate import ToolGate
from assistant_runner.tooling.pages import read_page
from assistant_runner.tooling.registry import load_tools
from assistant_runner.tooling.schema import tool_from_function

WORDS = "the ferry leaves harbour at seven in the morning and returns with fish and wool".split()  # noqa: SIM905


def best(
    work: Callable[[], object], *, clock: Callable[[], float] = time.perf_counter, times: int = 7
) -> float:
    """The shortest of several runs, in milliseconds."""
    found = []
    for _ in range(times):
        started = clock()
        work()
        found.append(clock() - started)
    return 1000 * min(found)


def report(name: str, cost_ms: float, allowed_ms: float) -> None:
    print(f"{name:<44} {cost_ms:9.2f} ms of {allowed_ms:g} ms  ({cost_ms / allowed_ms:.2f})")


def nap() -> str:
    """Sleep for 200 ms"""
    time.sleep(0.2)
    return "slept"


async def nap_async() -> str:
    """Sleep for 200 ms"""
    await asyncio.sleep(0.2)
    return "slept"


def answer(x: int) -> int:
    """Answer"""
    return x


def calls(function: Callable[..., object], count: int, *, times: int, **arguments: object) -> float:
    """The shortest time of so many calls at once, in milliseconds."""

    async def run() -> float:
        gate, tool = ToolGate(), tool_from_function(function)
        found = []
        async with httpx.AsyncClient() as http:
            context = ToolContext("call_1", http, environ={}, deadline_s=10)
            for _ in range(times):
                started = time.perf_counter()
                await asyncio.gather(*(gate.call(tool, arguments, context) for _ in range(count)))
                found.append(time.perf_counter() - started)
        return 1000 * min(found)

    return asyncio.run(run())


def make_page(size: int) -> bytes:
    """A page like an encyclopedia's: paragraphs with links, lists, tables."""
    random.seed(1)

    def word() -> str:
        chosen = random.choice(WORDS)
        return f'<a href="/wiki/{chosen}" title="{chosen}">{chosen}</a>' if random.random() < 0.1 else chosen

    html = "<html><head><title>T</title><script>var x = 1;</script></head><body><nav>menu</nav><main>"
    while len(html) < size:
        html += "<h2>Head</h2>" + "".join(f"<p>{' '.join(word() for _ in range(60))}</p>\n" for _ in range(5))
        html += "<ul>" + "<li>one <b>two</b></li>" * 10 + "</ul>"
        html += "<table>" + "<tr><td>1</td><td>2</td></tr>" * 10 + "</table>"
    return (html + "</main></body></html>").encode()


def make_news(size: int) -> bytes:
    """A page like a newspaper's: letters that are not ASCII, deep boxes, attributes, scripts, adverts."""
    random.seed(2)
    words = [*WORDS, "færge", "“Tromsø”", "fish&nbsp;&amp;&nbsp;chips"]
    box = (
        '<div class="block block--text" data-track=\'{"kind": "para"}\' style="margin: 0 auto; padding: 3px">'
    )
    html = "<title>N</title><body><header><nav>menu</nav></header><div id=content class=page>"
    while len(html) < size:
        html += box * 4
        for number in range(4):
            link = f'<a class="link" href="/n/{number}?a=1&amp;b=2" onclick="go(2 > 1)"><span>more</span></a>'
            html += f'<p class="lead" data-id="{number}">{" ".join(random.choices(words, k=40))} {link}</p>\n'
        html += (
            '<script>if (1 < 2) { push({"a": "<b>"}) }</script><!-- <slot> --><svg><path d="M0"></path></svg>'
        )
        html += '<div style="display: none">advert</div><aside><img src="/i.jpg" alt="a > b"></aside>'
        html += "</div>" * 4
    return (html + "</div><footer>Imprint</footer>").encode()


def make_manual(size: int) -> bytes:
    """A page like a programmer's manual: code and links with names of their own, examples, lists."""
    random.seed(3)
    html = "<title>M</title><body><nav>menu</nav><div id=content>\n"
    number = 0
    while len(html) < size:
        number += 1
        name = f"{random.choice(WORDS)}{number}"
        html += f'<h3>Method <code id="c{number}" class="name">{name}(path[, mode])</code>'
        html += f'<span><a href="#m{number}" class="mark" id="m{number}">#</a></span></h3>\n<ul>\n'
        for kind in ("string", "Buffer", "Array"):
            link = f'<a href="t.html#{kind}" class="type">&lt;{kind}&gt;</a>'
            html += f"  <li><code>{kind}</code> {link} {WORDS[number % 9]}</li>\n"
        words = " ".join(random.choices(WORDS, k=30))
        html += f"</ul>\n<p>{words} <strong data-n='{number}'>now</strong>.</p>\n"
        html += f'<pre><code class="js"><span class="k">await</span> {name}(<span class="s">1</span>, {{\n'
        html += "  a: 1,\n});\n</code></pre>\n"
    return (html + "</div>").encode()


def make_table(size: int) -> bytes:
    """A page that is one huge table: nearly all of it is tags."""
    row = "<tr>" + "<td class='n'>1234</td>" * 10 + "</tr>\n"
    return ("<title>T</title><table><tbody>" + row * (size // len(row)) + "</table>").encode()


PAGES = (
    ("HTML", make_page),
    ("a newspaper's HTML", make_news),
    ("a manual's HTML", make_manual),
    ("an HTML table", make_table),
)


def load_many(folder: Path, count: int) -> None:
    load_tools([f"./tool_{number}.py" for number in range(count)], cwd=folder)


def main() -> None:
    report("8 blocking tools of 200 ms each", calls(nap, 8, times=3), 220)
    report("8 async tools of 200 ms each", calls(nap_async, 8, times=3), 220)
    for kind, make in PAGES:
        read = functools.partial(read_page, make(1_000_000), "text/html", url="https://a.test/")
        convert = best(read, clock=time.process_time, times=25)
        report(f"1 MB of {kind} to text (CPU time)", convert, 60)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(50):
            text = f'def tool_{number}(city: str, days: int = 1) -> str:\n    """Do it"""\n    return city\n'
            (folder / f"tool_{number}.py").write_text(text)
        started = time.process_time()
        load_many(folder, 50)
        report("loading 50 tool modules (CPU time)", 1000 * (time.process_time() - started), 100)
    report("one call through the gate", calls(answer, 200, times=5, x=1) / 200, 1)
    rows = {"rows": ["x" * 1000] * 50_000}
    report("50 MB of result encoded and cut", best(lambda: encode(rows), times=3), 1000)


if __name__ == "__main__":
    main()
