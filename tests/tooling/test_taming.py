"""Pages made to keep a parser busy are answered all the same; sloppy ones are read as they always were."""

import itertools
import threading

import pytest

from assistant_runner.tooling import taming
from assistant_runner.tooling.pages import Page, read_page
from assistant_runner.tooling.taming import flatten, flaw_of

SIZE = 400_000
LIMIT_S = 10
FERRY = "The ferry leaves at seven in the morning and returns with fish and wool. "


def times(piece: str, size: int = SIZE) -> str:
    return piece * (size // len(piece))


def counted(piece: str, size: int = SIZE) -> str:
    """The piece over and over, with a number in it that is never the same."""
    return "".join(piece.format(number) for number in range(size // (len(piece) + 3)))


def read(html: str) -> Page | None:
    """The page, or None if it is not read in time."""
    found: list[Page] = []

    def work() -> None:
        found.append(read_page(html.encode(), "text/html", url="https://a.test/"))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    return found[0] if found else None


@pytest.mark.parametrize(
    "html",
    [
        pytest.param(times("<div>"), id="nested"),
        pytest.param(times("<div></x>"), id="nested-with-other-ends"),
        pytest.param(times("<div><!--</div>-->"), id="nested-with-ends-in-comments"),
        pytest.param(times("<div a='</div>'>"), id="nested-with-ends-in-values"),
        pytest.param(times("<div><noscript></div></noscript>"), id="nested-with-ends-for-no-scripts"),
        pytest.param(times("<div><object></div></object>"), id="nested-with-ends-out-of-scope"),
        pytest.param(times("<ul><li>"), id="nested-lists"),
        pytest.param(times("<rt>"), id="ruby-text-without-ruby"),
        pytest.param(times("<svg>"), id="drawings"),
        pytest.param(times("<table><tr><td>"), id="nested-tables"),
        pytest.param("<table>" + times("<div>x"), id="foster-parents"),
        pytest.param(counted("<font a={}>"), id="fonts"),
        pytest.param(
            f"<p>{counted('<font a={}>', 600)}</p>" + times("<p>x</p>"), id="fonts-in-each-paragraph"
        ),
        pytest.param(counted("""<font a" b{}=" c>x</font>">"""), id="fonts-with-ends-in-values"),
        pytest.param(counted("<font a={}><!--<b>--></b><!--</font>-->"), id="fonts-with-ends-in-comments"),
        pytest.param(counted("<b {}>") + counted("<i {}>") + times("x</b>", 40_000), id="adoption"),
        pytest.param(counted("<a href={}><div>"), id="links-in-links"),
        pytest.param(f"<p {counted('a{}=1 ')}>", id="attributes"),
        pytest.param(counted("<body a{}=1>"), id="attributes-of-many-bodies"),
        pytest.param("<select>" + times("<option>"), id="options"),
        pytest.param("<select><selectedcontent>" + times("<option selected><b>x"), id="options-nested"),
        pytest.param("<xmp>" + times("<!--"), id="comments-that-are-text"),
        pytest.param("<plaintext>" + times("<pre >"), id="preformatted-that-is-text"),
        pytest.param("<xmp>" + times('<a href="x" "" >'), id="links-that-are-text"),
        pytest.param(times("<p<!--x>"), id="comments-in-names"),
        pytest.param(times("<p<pre >"), id="preformatted-in-names"),
        pytest.param(times("<p<a href=x>"), id="links-in-names"),
        pytest.param(times('<a ">x</a>'), id="quotes-in-names"),
        pytest.param("<main>" + times("<nav>x"), id="frames-in-frames"),
        pytest.param("<main>" + times("<!--<pre>-->"), id="comments"),
        pytest.param(times("<"), id="no-tags"),
    ],
)
def test_a_page_made_to_hurt_is_answered(html: str):
    page = read(f"<title>Ferry</title>{html}")

    assert page is not None


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(f"<li>{FERRY}", id="li"),
        pytest.param(f"<p>{FERRY}<br>", id="p-br"),
        pytest.param(f"<tr><td>{FERRY}<td><font color=red>x", id="td-font"),
        pytest.param(f"<p><font size=2>{FERRY}<b>", id="p-font"),
        pytest.param(f"<center><font size=2>{FERRY}</center><hr>", id="center-font"),
        pytest.param(f"<dt>Time<dd>{FERRY}<img src=a.gif>", id="dt-dd"),
        pytest.param(f"<div><a href=/x>{FERRY}</div></a></p></span>", id="wrong-ends"),
        pytest.param(f"<svg><title>x</title><path d='M 0'/><g/></svg><p>{FERRY}", id="svg"),
    ],
)
def test_a_sloppy_page_keeps_its_structure(block: str):
    html = f"<table><ul>{block * 5000}"

    page = read(f"<div hidden>secret</div>{html}")

    assert flaw_of(html) == ""
    assert page is not None
    assert page.text.count(FERRY.strip()) == 5000
    assert "secret" not in page.text


def test_what_is_not_parsed_is_still_read_by_title_lines_and_text():
    html = "<title>A &amp; B</title><script>x</script><p>one &lt; two<li>three<!-- four -->"
    html += times("<div>") + "<b>end"

    page = read(html)

    assert flaw_of(html).startswith("elements nested ")
    assert page is not None
    assert page.title == "A & B"
    assert page.text == "one < two\n- three\n\nend"


@pytest.mark.parametrize(
    "html",
    [
        "<<b>div>x",
        "<b<i>>x",
        "<!-<div>",
        "</ <div>",
        '<p a=">"b>',
        "<title><div></title>",
        "<p a='<div>",
        "<?<div>",
    ],
)
def test_no_tag_is_left_where_tags_were_taken_out(html: str):
    flat = flatten(html, {"p": "\n\n"}).removeprefix("<title>").replace("</title><body>", "", 1)

    assert "<" not in flat.replace("<br>", "")


@pytest.mark.parametrize(
    ("pieces", "flaw"),
    [
        pytest.param(itertools.repeat("<div>", 30_000), "nested", id="nested"),
        pytest.param((f"<i {n}>x</p><p>" for n in range(3_000)), "formatting elements", id="formatting"),
        pytest.param(["<p ", *(f"a{n}=1 " for n in range(9_000)), ">"], "500 attributes", id="attributes"),
    ],
)
def test_a_flaw_is_told_in_words(pieces: object, flaw: str):
    assert flaw in flaw_of("".join(pieces))


def test_much_formatting_that_is_closed_at_once_is_told_by_counts(monkeypatch):
    monkeypatch.setattr(taming, "_follow", lambda html: "a look at every tag")
    link = '<code id="c{0}" class=x><a href="/c/{0}?a=1" title=\'c\'>read()</a></code>'

    flaw = flaw_of(counted(f"<p>{FERRY} {link} <strong data-n={{0}}>now</strong></p>"))

    assert flaw == ""
