"""Pages to text, where the parser's writing of odd HTML decides; whole fetches are in tests/tools."""

import asyncio

import pytest

from assistant_runner.tooling.pages import Page, read_large_page, read_page


def read(html: str) -> Page:
    return read_page(html.encode(), "text/html", url="https://a.test/")


@pytest.mark.parametrize(
    ("html", "text"),
    [
        pytest.param('<p title="a < b > c">one <b>two</b></p>three', "one two\nthree", id="in-a-value"),
        pytest.param("<p a < b>one</p><p>two</p>", "one\n\ntwo", id="in-an-attributes-name"),
        pytest.param("<p>one<b<i>two</i></p><p>three</p>", "onetwo\n\nthree", id="in-a-tags-name"),
        pytest.param("<p>1 &lt; 2 &gt; 0 &amp;lt;</p>", "1 < 2 > 0 &lt;", id="in-the-text"),
        pytest.param("<p>one<!-- a > b < c -->two</p>", "onetwo", id="in-a-comment"),
    ],
)
def test_angle_brackets_that_are_no_tags_do_not_upset_the_text(html: str, text: str):
    assert read(html).text == text


@pytest.mark.parametrize("start", ["<p>", "<!-- x --><html><p>", "\n<h1>H</h1><p>", "<meta name=a><p>"])
def test_html_without_a_label_is_known_by_its_beginning(start: str):
    page = read_page(f"{start}one <b>two</b>".encode(), "", url="https://a.test/")

    assert page.text.endswith("one two")


@pytest.mark.parametrize("charset", ["utf-16le", "UTF-16BE"])
def test_a_coding_of_two_bytes_needs_no_mark_where_it_is_named(charset: str):
    page = read_page("<p>Tromsø".encode(charset), f"text/html; charset={charset}", url="https://a.test/")

    assert page.text == "Tromsø"


def test_links_are_counted_from_the_base_that_the_page_names():
    page = read('<base href="/docs/"><p><a href="a.html">A</a> <a href="//b.test/c">C</a>')

    assert page.links == (("A", "https://a.test/docs/a.html"), ("C", "https://b.test/c"))


@pytest.mark.parametrize(
    ("content", "onward"),
    [
        ("0; url=b.html", "https://a.test/b.html"),
        ("5;URL='https://b.test/'", "https://b.test/"),
        ("0,/c", "https://a.test/c"),
        ("300", ""),
        ("0; url=http://[", "https://a.test/"),
    ],
)
def test_where_a_page_sends_a_browser_is_told(content: str, onward: str):
    assert read(f'<meta http-equiv="REFRESH" content="{content}">').onward == onward


def test_preformatted_text_keeps_its_lines_and_blanks():
    page = read('<p>a   b\nc</p><pre>if x:\n    <b title="1\n  2">y</b>\n\n\nend</pre>')

    assert page.text == "a b c\n\nif x:\n    y\n\nend"


@pytest.mark.parametrize("blank", ["\t", "\r\n", "\f", "\v", "\xa0", "&nbsp;", "&#9;"])
def test_blanks_of_all_kinds_are_one_blank(blank: str):
    assert read(f"<p>æ {blank} ø</p>").text == "æ ø"


def test_a_table_has_a_line_for_each_row_and_bars_between_cells():
    page = read("<table><tr><th>Year</th><th> Catch</th></tr><tr><td></td><td>7</td></tr></table>")

    assert page.text == "Year | Catch\n| 7"


@pytest.mark.parametrize(
    "attribute",
    ["hidden", "aria-hidden=true", "style='DISPLAY : none'", "style='color: red; visibility:hidden'"],
)
@pytest.mark.parametrize("name", ["p", "div", "custom-box"])
def test_what_is_hidden_is_not_text_whatever_its_element(name: str, attribute: str):
    page = read(f"<p>seen</p><{name} {attribute}>secret</{name}><{name} style='color: red'>too</{name}>")

    assert page.text.split() == ["seen", "too"]


def test_a_picture_for_browsers_without_scripts_does_not_end_the_head():
    pixel = '<noscript><img src="https://counter.test/p.gif"></noscript>'

    page = read(f"<head>{pixel}<title>Ferry</title><meta name=robots content=noai></head><p>At seven</p>")

    assert (page.title, page.robots, page.text) == ("Ferry", "noai", "At seven")


def test_a_main_part_with_little_text_and_much_markup_yields_to_the_whole_page():
    page = read(f"<main>{'<i></i>' * 500}short</main><div>{'The ferry leaves at 7. ' * 30}</div>")

    assert page.text.startswith("short")
    assert "The ferry leaves at 7." in page.text


async def test_the_loop_turns_while_a_large_page_is_read():
    body = b"<p>The ferry leaves at 7.</p>" * 50_000
    turned = asyncio.Event()

    async def turn() -> None:
        turned.set()

    reading = asyncio.create_task(read_large_page(body, "text/html", url="https://a.test/"))
    turning = asyncio.create_task(turn())
    first, _ = await asyncio.wait({reading, turning}, return_when=asyncio.FIRST_COMPLETED)

    assert first == {turning}
    assert turned.is_set()
    assert (await reading).text.startswith("The ferry leaves at 7.")


async def test_a_large_page_that_is_given_up_is_forgotten():
    body = b"<p>The ferry leaves at 7.</p>" * 50_000

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await read_large_page(body, "text/html", url="https://a.test/")


def test_text_that_is_not_to_be_parsed_is_text():
    page = read("<p>one</p><xmp><b>two</b> <!-- three --></xmp><noembed>four</noembed>")

    assert page.text == "one\n<b>two</b> <!-- three -->"


def test_json_that_is_nested_deeply_gets_no_margins():
    body = b"[" * 400 + b"1," * 20_000 + b"1" + b"]" * 400

    page = read_page(body, "application/json", url="https://a.test/")

    assert page.text == body.decode()
