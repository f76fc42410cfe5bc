"""A web page as text that a model can read, and what kind of page it is.

The bytes decide before the labels do: valid UTF-8 is read as such whatever is claimed, and a picture
called text/html is refused (cases 089, 091). Hidden things and scripts are not text. The main part of
a page is taken where it says which one that is and holds enough; else everything that is visible (case-100).
"""

import io
import itertools
import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import urljoin

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode

from assistant_runner.aside import aside
from assistant_runner.tooling.contract import ToolFailure
from assistant_runner.tooling.encoding import kind_of_bytes
from assistant_runner.tooling.taming import flatten, flaw_of

if TYPE_CHECKING:
    from pypdf import PdfReader

log = logging.getLogger(__name__)
logging.getLogger("pypdf").addHandler(logging.NullHandler())  # or each flaw of a PDF is told on stderr

PageKind = Literal["content", "block", "consent", "empty"]

DROPPED_NAMES = (
    "script style noscript template svg canvas iframe object embed audio video map select datalist noembed "
    "noframes"
)
DROPPED = frozenset(DROPPED_NAMES.split())
VERBATIM = {"xmp", "plaintext"}
"""Their text is written as it is, tags and all, which our searches for tags could not bear."""
SUSPECTS = (
    f":not(p, a, li, td, tr, div, span, b, i):is({', '.join(sorted(DROPPED | VERBATIM))}), "
    "[hidden], [aria-hidden=true], [style]:is([style*=none i], [style*=hidden i])"
)
"""What may be unseen. The commonest elements are turned away first, which halves the time of the search."""
MAIN: dict[str, Callable[[LexborNode], bool]] = {
    "main": lambda node: node.tag == "main",
    "[role=main]": lambda node: node.attributes.get("role") == "main",
    "#mw-content-text": lambda node: node.id == "mw-content-text",
    "#content": lambda node: node.id == "content",
    "article": lambda node: node.tag == "article",
}
"""How a page may name its main part, the surest first."""
FRAME = (
    "nav, footer, aside, header, form, dialog, menu, [role=navigation], [class]:is(.navbox, .toc, .hatnote, "
    ".noprint, .mw-editsection, .mw-jump-link, .shortdescription, sup.reference)"
)
"""Around and between the text of a main part: ways to elsewhere, and an encyclopedia's small print.

`[class]` first: most elements have none, and are done with after one question instead of eight.
"""
WHOLE = ("html", "body")
"""Never taken out, whatever they say of themselves: a script may show them later."""
BOX = ".infobox:not(.infobox *)"
"""Facts in a table that stands before the text; they are put after it."""
COMMENT = re.compile("<!--.*?-->", re.DOTALL)
PREFORMATTED = re.compile(r"<pre[\s>](?:[^<]++|<(?!/pre>))*+</pre>")
TAG = re.compile("<([^>]*)>")
"""A tag: our parser writes every other `<` and `>` as a name, those in the values of attributes too."""
ANCHOR = re.compile(
    r"""<a\s(?:[^>"]*"[^"]*")*?[^>"]*?\bhref="([^"]*)"[^>"]*(?:"[^"]*"[^>"]*)*>(.*?)</a>""", re.DOTALL
)
BLOCK_NAMES = (
    "address article aside blockquote body br caption center dd details dialog div dl dt fieldset figcaption "
    "figure footer form h1 h2 h3 h4 h5 h6 header hr html legend li main menu nav ol option p pre section "
    "summary table tr ul"
)
PARAGRAPH_NAMES = "h1 h2 h3 h4 h5 h6 p table blockquote pre"
BREAKS = {
    **{f"{slash}{name}": "\n" for name in BLOCK_NAMES.split() for slash in ("", "/")},
    **dict.fromkeys(PARAGRAPH_NAMES.split(), "\n\n"),
    **{f"/{name}": "" for name in ["li", "tr", "dt", "dd", "option"]},
    "li": "\n- ",
    "td": " | ",
    "th": " | ",
}
"""What a tag becomes in the text; tags that are not here vanish."""
BLANKS = "\t\r\n\f\v\xa0"
KEPT_BREAK, KEPT_BLANK = "\x01", "\x00"
"""Stand for the line breaks and blanks of preformatted text while all others are squeezed."""
MANY_BLANKS, MANY_BREAKS = re.compile("  +"), re.compile("\n\n\n+")
HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
BEGINNINGS = re.compile(
    r"\s*<(?:!--|(?:!doctype html|html|head|meta|title|style|script|body|"
    r"h1|p|div|table|iframe|font|a|b|br)[\s>/])",
    re.IGNORECASE,
)
"""How HTML without a label begins (MIME Sniffing Standard, section 7.1)."""
REFRESH = re.compile(r"""\s*[\d.]*\s*[;,]?\s*(?:url\s*=\s*)?["']?([^"']*)""", re.IGNORECASE)
META_CHARSET = re.compile(rb"""<meta[^>]+charset\s*=\s*["']?\s*([\w:.-]+)""", re.IGNORECASE)
STRETCH = 60_000
"""Characters of HTML whose tags are taken out at a time, so that the pieces stay in a processor's cache."""
SMALL_PAGE_BYTES = 100_000
"""Up to which a page is read at once: it takes a few milliseconds."""
SHORT_PAGE = 1500
MOST_OF_PDF = 2_000_000
"""Characters; the page on which they are reached is the last."""
PDF_READING_S = 60.0
ENOUGH_MAIN = 200
MAX_LINKS = 15
MAX_ANCHORS = 100
BLOCK_WORDS = re.compile(
    r"(enable|turn on|switch on|activate)\s+(javascript|cookies)|javascript (is|must be) |captcha|"
    r"verify (that )?you are (a )?human|are you a robot|checking your browser|access denied|unusual traffic|"
    r"security check|just a moment|request blocked|ddos protection",
    re.IGNORECASE,
)
CONSENT_WORDS = re.compile(
    r"we (and our partners )?use cookies|accept (all|cookies)|cookie (policy|settings|preferences|consent)|"
    r"manage (your )?(consent|preferences|choices)|your privacy|before you continue|consent to",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Page:
    """What was read. `kind` other than content: the text is a notice, not an article.

    `links`: (words, address) of the main part, absolute, at most 15. `robots`: what the page's meta
    says to robots, "" for nothing. `onward`: the address to which it sends a browser on by itself.
    """

    title: str
    text: str
    kind: PageKind
    media_type: str
    links: tuple[tuple[str, str], ...] = ()
    robots: str = ""
    language: str = ""
    onward: str = ""


def read_page(body: bytes, content_type: str, *, url: str, status: int = 200) -> Page:
    """The page in a reply's body; ToolFailure for what is no text at all."""
    claimed, charset = split_content_type(content_type)
    if charset.lower().startswith("utf-16") and b"\x00" in body[:4096]:  # not always with a mark
        body = body.decode(charset, "replace").encode()
    found = kind_of_bytes(body.replace(b"\x00", b"", 1) if body.count(b"\x00", 0, 4096) == 1 else body)
    if found == "application/pdf" or (claimed == "application/pdf" and found is None):
        return _read_pdf(body)
    if found is not None:
        raise ToolFailure(
            f"{url} is no text: its first bytes are of {found} ({len(body):,} bytes, labelled "
            f"{claimed or 'nothing'})",
            hint="it cannot be read as a page",
        )
    text = decode(body, charset).replace("\x00", "")
    if claimed.endswith("json") or (not claimed and text.lstrip()[:1] in "{["):
        return _read_json(text, claimed or "application/json")
    if _is_html(claimed, text):
        return _read_html(text, url=url, status=status)
    return Page("", text.strip(), "content" if text.strip() else "empty", claimed or "text/plain")


async def read_large_page(body: bytes, content_type: str, *, url: str, status: int = 200) -> Page:
    """As read_page, in a thread if the body is large or a PDF: deadlines hold, and interrupts get through."""
    is_pdf = b"%PDF" in body[:1024] or "pdf" in content_type.lower()  # a small one may unfold to a large one
    if len(body) <= SMALL_PAGE_BYTES and not is_pdf:
        return read_page(body, content_type, url=url, status=status)
    return await aside(
        lambda: read_page(body, content_type, url=url, status=status),
        name="page-reader",
    )


def split_content_type(content_type: str) -> tuple[str, str]:
    """The media type in lower case and the charset, "" where absent."""
    media_type, _, rest = content_type.partition(";")
    found = re.search(r"charset\s*=\s*[\"']?([\w:.-]+)", rest, re.IGNORECASE)
    return media_type.strip().lower(), found[1] if found else ""


def decode(body: bytes, charset: str = "") -> str:
    """The text: byte order mark, valid UTF-8, the claims of header and meta, then windows-1252."""
    for mark, name in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if body.startswith(mark):
            return body.decode(name, "replace")
    meta = META_CHARSET.search(body[:4096])
    claims = [charset, meta[1].decode("ascii", "ignore") if meta else ""]
    if b"\x1b" in body:  # ISO-2022 codings are valid ASCII
        claims_first = [name for name in claims if name.lower().startswith("iso-2022")]
    else:
        claims_first = []
    for name in (*claims_first, "utf-8", *claims):
        try:
            return body.decode(name) if name else body.decode("utf-8")
        except (LookupError, UnicodeDecodeError, ValueError):
            continue
    if _nearly_utf8(body):
        return body.decode("utf-8", "replace")
    return body.decode("windows-1252", "replace")


def _nearly_utf8(body: bytes) -> bool:
    """A body cut in the middle of a character, or with a few stray bytes, is still UTF-8."""
    text = body.decode("utf-8", "replace")
    wrong = text.count("\ufffd")
    right = sum(1 for letter in text[:200_000] if ord(letter) > 127) - wrong
    return right > 10 * wrong


def _is_html(claimed: str, text: str) -> bool:
    if claimed in ("text/html", "application/xhtml+xml"):
        return True
    if claimed in ("", "application/octet-stream", "text/plain", "unknown/unknown"):
        start = text.lstrip()[:500].lower()
        return start.startswith(("<!doctype html", "<html")) or (
            claimed != "text/plain" and (BEGINNINGS.match(start) is not None or "<body" in start)
        )
    return False


def _read_json(text: str, media_type: str) -> Page:
    pieces: list[str] = []
    length = 0
    most = 4 * len(text) + SHORT_PAGE  # of values that are nested deeply, nearly all would be margin
    try:
        for piece in json.JSONEncoder(ensure_ascii=False, indent=1).iterencode(json.loads(text)):
            pieces.append(piece)
            length += len(piece)
            if length > most:
                break
        pretty = "".join(pieces) if length <= most else text.strip()
    except (ValueError, RecursionError):
        pretty = text.strip()
    return Page("", pretty, "content" if pretty else "empty", media_type)


def _read_pdf(body: bytes) -> Page:
    try:
        from pypdf import PdfReader
        from pypdf.errors import PyPdfError
    except ImportError:
        raise ToolFailure(
            "this is a PDF, and reading PDF files is not installed",
            hint="the user can install assistant-runner[pdf]",
        ) from None
    try:
        reader = PdfReader(io.BytesIO(body))
        text = "\n\n".join(_texts_of(reader)).strip()
        title = str((reader.metadata.title if reader.metadata else "") or "")
    except (PyPdfError, ValueError, KeyError, RecursionError) as error:
        raise ToolFailure(f"the PDF cannot be read: {type(error).__name__}: {error}") from None
    return Page(title, text, "content" if text else "empty", "application/pdf")


def _texts_of(reader: "PdfReader") -> Iterator[str]:
    """The text of each page, up to the length of a long book or the time that a tool has: all may be the
    same page, a million times."""
    length, until = 0, time.monotonic() + PDF_READING_S
    for number, page in enumerate(reader.pages):
        if length > MOST_OF_PDF or time.monotonic() > until:
            yield f"[pages {number + 1:,} to {len(reader.pages):,} were left out]"
            return
        text = page.extract_text()
        length += len(text)
        yield text


def _read_html(html: str, *, url: str, status: int) -> Page:
    if flaw := flaw_of(html):
        log.info("%s is read without its structure: it has %s", url, flaw)
        html = flatten(html, BREAKS)
    tree = LexborHTMLParser(html, options=LexborDocumentOptions.WO_EVENTS, scripting=True)
    heading, root = tree.css_first("head title"), tree.css_first("html")
    robots = _said_in_head(tree, 'meta[name="robots" i]', "content")
    title = " ".join(heading.text().split()) if heading else ""
    language = (root.attributes.get("lang") or "") if root else ""
    base = _joined(url, _said_in_head(tree, "base[href]", "href"))
    refresh = REFRESH.match(_said_in_head(tree, 'meta[http-equiv="refresh" i]', "content"))
    _drop_unseen(tree)  # no node from before may be used after this
    part, text = _readable_part(tree, has_box="infobox" in html)
    return Page(
        title=title,
        text=text,
        kind=judge(text, title, script_characters=len(html) - len(text), status=status),
        media_type="text/html",
        links=tuple(_links(part, url, base)),
        robots=robots,
        language=language,
        onward=_joined(base, refresh[1].strip()) if refresh and refresh[1].strip() else "",
    )


def _said_in_head(tree: LexborHTMLParser, selector: str, attribute: str) -> str:
    """The attribute of the first element of the head that the selector names; "" if there is none."""
    node = tree.head.css_first(selector) if tree.head else None
    return (node.attributes.get(attribute) or "") if node else ""


def _joined(base: str, address: str) -> str:
    try:
        return urljoin(base, address)
    except ValueError:  # an address that cannot be read is none
        return base


def _drop_unseen(tree: LexborHTMLParser) -> None:
    """Take out what is no text and what a reader does not see."""
    suspects = tree.css(SUSPECTS)
    verbatim = any(node.tag in VERBATIM for node in suspects)
    _remove(node for node in suspects if node.tag not in WHOLE and _is_unseen(node))
    if verbatim:
        for node in tree.css(", ".join(sorted(VERBATIM))):
            node.replace_with(node.text())


def _is_unseen(node: LexborNode) -> bool:
    if node.tag in DROPPED:
        return True
    attributes = node.attributes
    if "hidden" in attributes or attributes.get("aria-hidden") == "true":
        return True
    return HIDDEN_STYLE.search(attributes.get("style") or "") is not None


def _remove(nodes: Iterable[LexborNode]) -> None:
    """Take nodes out, each once and the inner ones first: removing one frees all that is inside it.

    The parser lists matches in the order of the document, some of them more than once.
    """
    unique = {node.mem_id: node for node in nodes}
    for node in reversed(unique.values()):
        node.decompose()


def _readable_part(tree: LexborHTMLParser, *, has_box: bool) -> tuple[str, str]:
    """The HTML of the main part and its text if that is enough, else of the whole body."""
    main = _main_part(tree)
    body = _written(tree.body) if tree.body and (main is None or _is_thin(main)) else ""
    whole = visible_text(body)
    if main is not None:
        frames = [node for node in main.css(FRAME) if node.mem_id != main.mem_id]
        if _is_framed(main, frames):
            _remove(frames)
        boxes = [node for node in main.css(BOX) if node.mem_id != main.mem_id] if has_box else []
        facts = "".join(map(_written, boxes))
        _remove(boxes)
        html = _written(main) + facts
        text = visible_text(html)
        if len(text) >= ENOUGH_MAIN or (text and len(text) >= len(whole) // 2):
            return html, text
    return body, whole


def _written(node: LexborNode) -> str:
    """The node's HTML without comments."""
    return _sub(COMMENT, "", node.html or "", end="-->")


def _sub(closed: re.Pattern[str], new: str | Callable[[re.Match[str]], str], html: str, *, end: str) -> str:
    """The HTML with what is closed replaced; no search goes beyond the last end, so none is in vain."""
    if end not in html:
        return html
    last = html.rfind(end) + len(end)
    return closed.sub(new, html[:last]) + html[last:]


def _is_framed(main: LexborNode, frames: list[LexborNode]) -> bool:
    """Whether frames are around the text, not it around them: a form may hold the article."""
    allowed = len(main.text()) if frames else 0
    around = 0
    for node in frames:
        around += 2 * len(node.text())
        if around >= allowed:  # at the latest after the same text twice, however frames are nested
            return False
    return around > 0


def _is_thin(main: LexborNode) -> bool:
    """Whether a main part may turn out to be a shell, so that the body is wanted for comparison."""
    lengths = (len(node.text_content or "") for node in main.traverse(include_text=True))
    return all(length < 4 * ENOUGH_MAIN for length in itertools.accumulate(lengths))


def _main_part(tree: LexborHTMLParser) -> LexborNode | None:
    """What the page itself calls its main part; of several, none."""
    found = {node.mem_id: node for node in tree.css(", ".join(MAIN))}  # one search instead of five
    for is_meant in MAIN.values():
        meant = [node for node in found.values() if is_meant(node)]
        if len(meant) == 1:
            return meant[0]
    return None


class _Marks(dict[str, str]):
    """What each tag of one page becomes; a tag with attributes is looked at once."""

    def __missing__(self, tag: str) -> str:
        name = tag.split(maxsplit=1)[0].rstrip("/") if tag.strip() else ""
        mark = self[tag] = BREAKS.get(name, "")
        return mark


def visible_text(html: str) -> str:
    """The text of well-formed HTML as our parser writes it, without comments: a line for each block.

    List items begin with a dash, cells of a table stand between bars, preformatted text keeps its lines.
    """
    if "<pre" in html:
        html = _sub(PREFORMATTED, _keep_blanks, html, end="</pre>")
    for blank in BLANKS:  # str.translate takes 100 times as long where one letter is not ASCII
        html = html.replace(blank, " ")
    marks = _Marks(BREAKS)
    text = "".join([_without_tags(stretch, marks) for stretch in _stretches(html)])
    text = unescape(text).replace(KEPT_BREAK, "\n")
    if "   " in text:
        text = MANY_BLANKS.sub(" ", text)
    else:  # longer runs are rare where the source is not indented
        text = text.replace("  ", " ")
    text = "\n".join([line.strip(" ").removeprefix("| ") for line in text.split("\n")])
    return MANY_BREAKS.sub("\n\n", text).replace(KEPT_BLANK, " ").strip()


def _stretches(html: str) -> Iterator[str]:
    """The HTML in parts that end with a tag: only a tag's end is written as `>`."""
    start = 0
    while start < len(html):
        end = html.find(">", start + STRETCH) + 1 or len(html)
        yield html[start:end]
        start = end


def _without_tags(html: str, marks: _Marks) -> str:
    """The text with its characters still escaped, and each tag's mark in its place."""
    pieces = html.replace(">", "<").split("<")  # text and tags by turns, in half the time of TAG.split
    if len(pieces) != 2 * html.count(">") + 1:  # a name that holds a <, such as that of <p<b>
        pieces = TAG.split(html)
    pieces[1::2] = map(marks.__getitem__, pieces[1::2])
    return "".join(pieces)


def _keep_blanks(preformatted: re.Match[str]) -> str:
    return preformatted[0].replace("\n", KEPT_BREAK).replace("  ", 2 * KEPT_BLANK)


def unescape(text: str) -> str:
    """The four characters that our parser writes as names."""
    if "&" not in text:
        return text
    return text.replace("&nbsp;", " ").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _links(html: str, url: str, base: str) -> Iterator[tuple[str, str]]:
    """The first links with words, each address once; `base`: what relative ones are counted from."""
    seen: set[str] = set()
    for found in itertools.islice(ANCHOR.finditer(html, 0, html.rfind("</a>") + 4), MAX_ANCHORS):
        address = _joined(base, unescape(found[1].replace("&quot;", '"'))).split("#", 1)[0]
        if address in seen or address in (url, base) or not address.startswith(("http://", "https://")):
            continue
        if words := " ".join(visible_text(found[2]).split()):
            seen.add(address)
            yield words[:80], address
            if len(seen) == MAX_LINKS:
                return


def judge(text: str, title: str, *, script_characters: int, status: int = 200) -> PageKind:
    """Whether a page is content, a wall before it, or an empty shell. Long texts are content (case-094)."""
    if len(text) < 40 and (script_characters > 2 * len(text) + 200 or status != 200):
        return "block" if BLOCK_WORDS.search(text) else "empty"
    if len(text) > SHORT_PAGE:
        return "content"
    words = f"{title}\n{text}"
    blocks, consents = len(BLOCK_WORDS.findall(words)), len(CONSENT_WORDS.findall(words))
    if blocks and (len(text) < 500 or blocks > 1):
        return "block"
    if consents > 1 or (consents and len(text) < 300):
        return "consent"
    return "content" if text else "empty"
