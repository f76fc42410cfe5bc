"""Pages that would keep an HTML parser busy for minutes, found before it sees them.

The algorithm of HTML5 walks the stack of open elements at nearly every tag, repeats every formatting element
that was left open in each block after it, and compares each attribute of a tag with all before it: what is
nested deeply takes quadratic time, `<font a=1><font a=2>...` memory without bound (HTML Standard, sections
13.2.4 and 13.2.6). A few counts tell that an ordinary page is none of these; only where they do not, its
tags are followed one by one.
"""

import itertools
import random
import re
from collections.abc import Mapping

FEW_TAGS = 1_500
"""So many tags can do no harm, however they are nested."""
MANY_TAGS = 14_000
"""Fewer cannot be nested so deeply that it takes a second; formatting is looked at all the same."""
MOST_STEPS = 100_000_000
"""Open elements summed over all tags; the parser walks past so many in about a second."""
MOST_COPIES = 1_500_000
"""Formatting elements that the parser may add by itself, about 200 bytes each."""
MOST_ATTRIBUTES = 500
CHUNK = 16_000
STRIDE, SAMPLE = 64_000, 700
FEW_SAMPLED = 40
"""Elements left open in the samples by chance: samples begin and end in the middle of things."""
SPARSE = 8
"""Tags in a chunk; where there are fewer, one of them may be very long."""

FORMATTING_NAMES = "b big code em font i nobr s small strike strong tt u a"
FORMATTING = frozenset(FORMATTING_NAMES.split())
INLINE = FORMATTING | {"p"}
LOOSE_NAMES = "li dd dt td th tr tbody thead tfoot option optgroup"
CLOSED_BY_NEXT = frozenset(LOOSE_NAMES.split()) | {"p"}
LOOSE = INLINE | CLOSED_BY_NEXT
"""What may be left open: the end of an element around them ends them too."""
ROOTS = ("html", "body")
"""All of them are one element, which gets the attributes of all."""
VOID_NAMES = (
    "area base basefont bgsound br col embed frame hr image img input keygen link meta param source track "
    "wbr html head body"
)
VOID = frozenset(VOID_NAMES.split())
"""What is never on the stack of open elements, or once."""
RAW_NAMES = "script style textarea title xmp iframe noembed noframes noscript"
RAW = frozenset(RAW_NAMES.split())
NOTHING: frozenset[str] = frozenset()
SIBLINGS = {
    "li": (("li",), INLINE),
    "dd": (("dd", "dt"), INLINE),
    "dt": (("dd", "dt"), INLINE),
    "option": (("option",), NOTHING),
    "td": (("td", "th"), INLINE),
    "th": (("td", "th"), INLINE),
    "tr": (("td", "th", "tr"), INLINE),
}
"""Whose start ends which elements before it, and past what."""
BLOCK_NAMES = (
    "address article aside blockquote center details dialog dir div dl fieldset figcaption figure footer "
    "form h1 h2 h3 h4 h5 h6 header hr main menu nav ol p pre section summary ul li dd dt"
)
BLOCKS = frozenset(BLOCK_NAMES.split())
"""Whose start ends a paragraph before it (a table does so in all but quirks mode, and is left open here)."""
FAR = 50
"""How many loose elements are looked through for the one that an end tag means."""

REPEATED = re.compile(
    r"<[bcefhinstuBCEFHINSTU](?![dhprDHPR])(?:[\s/>]|[tTmM][\s/>]|[oO][nNdDbB][tTeErRyY]|[tT][mM][lL]|"
    r"[iI][gG][\s/>]|[mM][aA][lL][lL]|[tT][rR][iIoO])[^>]*"
)
"""Start tags of formatting elements but `a`, which ends the one before, and of `html` and `body`.

Names that begin alike are found too: a bound is wanted, quickly.
"""
BLANK = r"[ \t\n\f\r]"
SIMPLE_VALUE = r"""(?:"[^"<>]*+"|'[^'<>]*+'|[^ \t\n\f\r"'<>=]++)"""
SIMPLE_TAG = rf"""(?:{BLANK}++[^ \t\n\f\r"'<>=]++(?:={SIMPLE_VALUE})?+)*+{BLANK}*+>"""
CLOSED = re.compile(rf"<([a-zA-Z][a-zA-Z0-9]*+){SIMPLE_TAG}[^<]*+</\1>")
"""An element without elements in it, whose end every tokenizer sees where we do: nothing is left open."""
CLOSED_FORMATTING = re.compile(
    rf"<(?=[bcefinstu](?![dhpr]))(b|i|em|code|strong|s|small|tt|u|font|big|nobr|strike){SIMPLE_TAG}[^<]*+</\1>"
)
"""Of these, most of the formatting ones; found in half the time."""
LAYERS = 3
"""How often such elements are taken out, the inner ones first."""
ATTRIBUTE = (
    rf"[^ \t\n\f\r/>][^ \t\n\f\r/>=]*+(?:{BLANK}*+={BLANK}*+"
    r"""(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)|[^ \t\n\f\r>"'][^ \t\n\f\r>]*+)?+)?+"""
)
TOKEN = re.compile(
    r"<(?:!--(?:>|->|.*?--!?>|.*\Z)|[!?][^>]*>?|/(?![a-zA-Z])[^>]*>?|(?P<end>/?)"
    rf"(?P<name>[a-zA-Z][^ \t\n\f\r/>]*+)(?P<attributes>(?:[ \t\n\f\r/]++|{ATTRIBUTE})*+)(?:>|\Z))",
    re.DOTALL,
)
"""A comment or a tag as a tokenizer of HTML5 sees it; takes linear time on any text."""
ATTRIBUTES = re.compile(ATTRIBUTE)
ENDS = {name: re.compile(rf"</{name}(?=[ \t\n\f\r/>])", re.IGNORECASE) for name in RAW}


def flaw_of(html: str) -> str:
    """What would keep a parser busy too long, in words; "" for a page that can be parsed."""
    return "" if _is_plainly_tame(html) else _follow(html)


def _is_plainly_tame(html: str) -> bool:
    """Whether counts alone tell that nothing is nested deeply; most pages pass."""
    seen = [html.count("<", start, start + CHUNK) for start in range(0, len(html), CHUNK)]
    tags = sum(seen)
    if min(seen[:-1], default=SPARSE) < SPARSE and _is_crowded(html, seen):
        return False
    if tags <= FEW_TAGS:
        return True
    if tags > MANY_TAGS and (_steps_at_most(html, seen) > MOST_STEPS or _seems_to_pile_up(html)):
        return False
    return _copies_few(html, tags)


def _copies_few(html: str, tags: int) -> bool:
    """Whether the formatting that may be left open is little; most is closed at once, by its own end."""
    for closed in (CLOSED_FORMATTING, *itertools.repeat(CLOSED, LAYERS)):
        if _copied_at_most(REPEATED.findall(html)) * tags <= MOST_COPIES:
            return True
        html = closed.sub("", html)
    return _copied_at_most(REPEATED.findall(html)) * tags <= MOST_COPIES


def _is_crowded(html: str, seen: list[int]) -> bool:
    """Whether a chunk without tags is inside one that has too many attributes."""
    looked = -1
    for number, count in enumerate(seen[:-1]):
        at = max(0, html.rfind("<", 0, number * CHUNK + 1)) if count < SPARSE else looked
        if at != looked:
            tag = TOKEN.match(html, at)
            if tag is not None and tag["name"] is not None and _many(tag["attributes"]):
                return True
            looked = at
    return False


def _steps_at_most(html: str, seen: list[int]) -> int:
    """As many as if each end tag did end an element."""
    level = steps = 0
    for number, count in enumerate(seen):
        level = max(0, level + count - 2 * html.count("</", number * CHUNK, (number + 1) * CHUNK))
        steps += level * count
    return steps


def _seems_to_pile_up(html: str) -> bool:
    """Whether samples show elements without ends: where these are in comments, or are of other elements.

    The samples are taken at random, so that a page cannot be made to avoid them.
    """
    opened: dict[str, int] = {}
    seen = wrong = 0
    for start in range(0, len(html), STRIDE):
        at = html.find("<", start + random.randrange(STRIDE))
        last = at + SAMPLE
        stack: list[str] = []
        while at >= 0 and (found := TOKEN.search(html, at, last)):
            at = found.end()
            if (name := found["name"]) is None:
                continue
            name = name.lower()
            seen += 1
            if found["end"]:
                opened[name] = opened.get(name, 0) - 1
                wrong += bool(stack) and not _end(stack, name) and name in stack
            elif name in RAW:
                end = ENDS[name].search(html, at, last)
                at = end.end() if end else last
            elif name not in VOID:
                opened[name] = opened.get(name, 0) + 1
                _begin(stack, name)
    left_open = sum(max(0, count) for name, count in opened.items() if name not in CLOSED_BY_NEXT)
    return left_open + wrong > max(FEW_SAMPLED, seen // 16)


def _copied_at_most(formatting: list[str]) -> int:
    """Of formatting elements that are the same in all attributes, three are repeated."""
    return min(len(formatting), 3 * len(set(formatting)))


def _follow(html: str) -> str:
    """The flaw, after a look at every tag.

    An element counts as ended only where every parser agrees; who mixes up ends counts as nesting.
    """
    stack: list[str] = []
    kinds: set[str] = set()
    formatting = foreign = roots = steps = copies = 0
    ends_itself = True  # <path/> inside SVG
    at = 0
    while found := TOKEN.search(html, at):
        at = found.end()
        name = found["name"]
        if name is None:
            if foreign and found[0].startswith("<![CDATA["):
                return "unparsed text inside a drawing"
            continue
        name = name.lower()
        steps += len(stack) + 1
        if found["end"]:
            if _end(stack, name):
                formatting -= name in FORMATTING
                foreign -= name in ("svg", "math")
            continue
        attributes = found["attributes"]
        if len(attributes) > 2 * MOST_ATTRIBUTES and _many(attributes):
            return f"a tag with more than {MOST_ATTRIBUTES} attributes"
        roots += name in ROOTS
        if roots > MOST_ATTRIBUTES:
            return f"{name} more than {MOST_ATTRIBUTES} times"
        if name in RAW:
            end = ENDS[name].search(html, at)
            content = html[at : end.start() if end else len(html)]
            if "<" in content and (
                foreign
                or "select" in stack
                or (name == "script" and "<!--" in content and "<script" in content)
            ):
                return f"tags inside {name}"
            at = end.end() if end else len(html)
            continue
        if name == "plaintext":
            return "a tag of the year 1992 that never ends"
        if foreign and (name in BLOCKS or name in VOID or name in FORMATTING or name == "span"):
            ends_itself = False
        if name in VOID or (foreign and ends_itself and attributes.endswith("/")):
            continue
        if name in FORMATTING:
            formatting += 1
            kinds.add(found[0])
        copied = min(formatting, 3 * len(kinds))
        copies += copied
        steps += copied
        if steps > MOST_STEPS:
            return f"elements nested {len(stack) + copied:,} deep"
        if copies > MOST_COPIES:
            return f"{copied:,} formatting elements that never end"
        foreign += name in ("svg", "math")
        if not (
            stack and stack[-1] == name and (name == "p" or name in SIBLINGS)
        ):  # <li> after <li> and such
            _begin(stack, name)
    return ""


def _begin(stack: list[str], name: str) -> None:
    """Put an element on the stack, after taking off those that its start ends."""
    if name in BLOCKS:
        _cut(stack, ("p",), FORMATTING)
    if name in SIBLINGS:
        siblings, past = SIBLINGS[name]
        while _cut(stack, siblings, past):
            pass
    stack.append(name)


def _cut(stack: list[str], names: tuple[str, ...], past: frozenset[str]) -> bool:
    """Take off the nearest element of these names, with what was left open in it."""
    depth = len(stack) - 1
    nearest = max(0, len(stack) - FAR)
    while depth > nearest and stack[depth] in past:
        depth -= 1
    if depth < 0 or stack[depth] not in names:
        return False
    del stack[depth:]
    return True


def _end(stack: list[str], name: str) -> bool:
    """Whether an end tag ends an element for certain, which is then off the stack."""
    if stack and stack[-1] == name:
        stack.pop()
        return True
    if name not in FORMATTING:
        return _cut(stack, (name,), LOOSE - {name})
    for depth in range(len(stack) - 1, max(-1, len(stack) - FAR), -1):
        if stack[depth] == name:
            del stack[depth]
            return True
        if stack[depth] not in FORMATTING:
            break
    return False


def _many(attributes: str) -> bool:
    return next(itertools.islice(ATTRIBUTES.finditer(attributes), MOST_ATTRIBUTES, None), None) is not None


def flatten(html: str, breaks: Mapping[str, str]) -> str:
    """The page's title and text as HTML without any nesting, in linear time; hidden parts are not told apart.

    `breaks`: what a tag becomes in the text, by its name or `/name`; line breaks are written as `<br>`.
    """
    title, pieces, at = "", [], 0
    while found := TOKEN.search(html, at):
        pieces.append(html[at : found.start()].replace("<", "&lt;"))
        at = found.end()
        name = (found["name"] or "").lower()
        if name in RAW and not found["end"]:
            end = ENDS[name].search(html, at)
            content = html[at : end.start() if end else len(html)]
            at = end.start() if end else len(html)
            if name == "title":
                title = title or content.replace("<", "&lt;")
        else:
            pieces.append(breaks.get(found["end"] + name, "").replace("\n", "<br>") if name else "")
    pieces.append(html[at:].replace("<", "&lt;"))
    return f"<title>{title}</title><body>{''.join(pieces)}"
