"""The words that the planner knows: concepts of the shipped tools in five languages, and stop words.

A concept is a name for a group of words; a trailing `*` makes a word a prefix. Anything outside
these groups is matched by the tool's own words only.
"""

import re
from functools import lru_cache


def words(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())


CONCEPTS: dict[str, tuple[str, ...]] = {
    "weather": (
        *("weather", "forecast*", "temperature*", "humidity", "umbrella", "wetter*", "temperatur*"),
        *("warmer", "colder", "hotter", "meteo", "clima", "pogod*", "天气", "气温", "温度", "天氣"),
    ),
    "wiki": ("wiki", "wikis", "wikipedi*", "维基*", "維基*"),
    "url": ("url", "urls", "link", "links", "adresse", "indirizzo", "adres", "网址", "链接", "網址"),
    "page": (
        *("page", "pages", "webpage*", "website*", "site", "article*", "content", "contents"),
        *("seite", "seiten", "webseite*", "inhalt*", "artikel*", "pagina", "pagine", "contenuto"),
        *("articolo", "sito", "strona", "strony", "stronie", "stronę", "treść", "zawartość"),
        *("artykuł*", "网页", "页面", "内容", "网站"),
    ),
    "add": ("add", "sum", "plus", "total"),
    "time": ("time", "clock"),
    "search": ("search", "google", "suche", "cerca", "szukaj", "搜索"),
    "translate": ("translate*", "translation*"),
    "mail": ("mail", "mails", "email*"),
    "book": ("book", "reserve", "reservation*", "booking*", "预订", "预定"),
    "delete": ("delete", "remove", "erase", "lösch*", "cancella", "usuń", "删除"),
    "create": ("create", "make", "open"),
    "send": ("send", "mail"),
    "update": ("update", "change", "modify", "edit"),
    "cancel": ("cancel", "abort", "undo", "stornier*", "annulla", "anuluj", "取消"),
    "deploy": ("deploy", "release", "ship"),
    "pay": ("pay", "transfer", "支付", "付款"),
    "buy": ("buy", "purchase", "order"),
}
PHRASES: tuple[tuple[str, str], ...] = (
    ("weather", r"\bche tempo\b"),
    ("weather", r"\bil tempo\b"),
    ("weather", r"\b(?:how (?:warm|hot|cold|wet|windy) is it|is it (?:warm|hot|cold|wet|windy))\b"),
    ("weather", r"\b(?:is it|will it|does it) (?:be )?(?:rain|raining|snow|snowing|sunny)\b"),
    ("weather", r"\bwie (?:warm|kalt|heiß) ist es\b"),
    ("page", r"\bweb page\b"),
    ("page", r"\bweb site\b"),
)
WRITE_CONCEPTS = frozenset(
    {"add", "book", "delete", "create", "send", "update", "cancel", "deploy", "pay", "buy"}
)
WRITE_VERBS = WRITE_CONCEPTS | {"set", "write", "post", "put", "upload", "reserve", "remove", "insert", "run"}

GENERIC = words(
    "get fetch retrieve find list show read check lookup look do call tool function current my the a an of"
    " for by to with from in on at and or is are be info information data detail details api new all given"
    " simple this that it its as can use used using out into etc eg e g string value values name names one"
    " returns return which when what be by your their any some"
)
"""Words of a tool's name or description that say nothing about its topic."""

QUESTION_WORDS = words(
    "what which who whom whose where when why how is are was were do does did can could will would should"
    " may shall has have whats wie was wo wer wann warum welche welcher welches ist sind kannst können gib"
    " zeig zeige sag nenne che cosa qual quale quali come dove quando chi quanto è dimmi mostra dammi puoi"
    " jaka jaki jakie jak gdzie kiedy co czy podaj pokaż powiedz"
)
REQUEST_WORDS = words(
    "tell show give find get look check search list read open fetch summarise summarize explain compare"
    " calculate compute translate book reserve send create make add delete remove update cancel set call use"
    " run order buy play convert describe provide return report need want know please like bitte suche finde"
    " vergleiche per favore proszę znajdź vorrei ich-möchte deploy pay transfer schedule remind write"
)
PRONOUNS = words("i we he she they you it my our his her their me us ich wir io noi")
STATEMENT_VERBS = words(
    "is was were am are had have has love loves like likes hate hates went enjoyed think thinks said feel"
    " feels live lives lived moved visited met saw ist war bin sind hatte habe liebe"
)
NEGATIONS = re.compile(r"\b(?:don['’]?t|do not|never|without|nicht|keine?n?|senza)\b|不要|别", re.IGNORECASE)
CONTRARY = frozenset({"cancel", "delete"})
"""Concepts that turn a request into its opposite: `cancel my booking` is nothing for a tool that books."""
CONTRARY_WITHIN = 4
"""Words at the beginning of a sentence among which such a word is the verb."""
ASKS_BACK = re.compile(
    r"^\W*(?:did|have|has|had) (?:i|we|he|she|they|anyone|anybody|someone|somebody)\b", re.IGNORECASE
)
"""Asks whether something was done; that is no wish to have it done."""
OTHER_TIME = re.compile(
    r"\b(?:(?:day after )?tomorrow|yesterday|this weekend|(?:next|last) (?:week(?:end)?|month|year|night)"
    r"|(?:next|last|on) (?:mon|tues|wednes|thurs|fri|satur|sun)day|übermorgen|gestern"
    r"|(?<!guten )(?<!heute )(?<!der )morgen|domani|ieri|jutro|wczoraj)\b|明天|后天|昨天",
    re.IGNORECASE,
)
GREETING = re.compile(
    r"^\W*(?:hi|hello|hey|good (?:morning|evening|afternoon|day)|thanks?(?: you)?(?: very much)?|bye|hallo"
    r"|ciao|cześć|dzień dobry|danke|grazie|dziękuję|how are you(?: doing)?(?: today)?|nice to meet you)\b"
    r"|^\W*(?:你好|谢谢)",
    re.IGNORECASE,
)
PREPOSITIONS = words(
    "in of for at near around from to about with between von für bei aus nach über di per ad da su w we dla z"
    " ze o do na"
)
ITALIAN = words("che il la qual quale è di tempo meteo com come dimmi")
POLISH = words("jaka jaki jakie pogoda pogodę podaj pokaż czy oraz dla adres strony stronie")
JOINERS = words("and or und oder e ed i oraz o vs versus")
CONNECTORS = words("de la del of am an der den upon sur di do da dos das el al le les the on nad aan sous")
NOT_ITSELF = words(
    "capital mayor president king queen currency population language flag history hauptstadt capitale"
    " stolica stolicy"
)
"""`the capital of France` is not France: the name after `of` is not the place that is meant."""
NO_FRAGMENT = words(
    "nice great good bad lovely beautiful terrible awful fine perfect wonderful hot cold warm sunny rainy"
    " cloudy"
    " cool local current app api report reports update channel station data info service services tool news"
    " map maps why test schön gut schlecht bello brutto ładna what's stuff thing things again more some any"
)
"""Words beside a topic that name no place: `nice weather`, `weather app`."""
NOT_NAMES = words(
    "i ok okay ai api url http https json html pdf today tomorrow yesterday now monday tuesday wednesday"
    " thursday friday saturday sunday january february march april may june july august september october"
    " november december please thanks thank hello hi hey dear also then and or but if so not no yes the a an"
    " this that these those there here it its my your our his her their me you we they he she compare both"
    " each either one two three in on at of for from to about with und oder auch bitte heute morgen jetzt der"
    " die das den dem des ein eine e ed il lo la gli le un una oggi domani adesso i a w dziś jutro teraz"
    " celsius fahrenheit plus minus times let lets i'm i'd i've without via using com'è"
    " cos'è qual'è dov'è just say there's"
)
REGIONS = words(
    "alabama alaska arizona arkansas california colorado connecticut delaware florida georgia hawaii idaho"
    " illinois indiana iowa kansas kentucky louisiana maine maryland massachusetts michigan minnesota"
    " mississippi missouri montana nebraska nevada ohio oklahoma oregon pennsylvania tennessee texas utah"
    " vermont virginia washington wisconsin wyoming france germany deutschland italy italia poland polska"
    " spain england scotland wales ireland netherlands belgium austria switzerland sweden norway denmark"
    " finland iceland portugal greece turkey russia ukraine china japan india canada mexico brazil argentina"
    " chile peru egypt kenya nigeria australia usa uk us ontario quebec bavaria bayern england korea vietnam"
    " thailand indonesia israel morocco hungary romania bulgaria croatia serbia slovakia"
    " slovenia czechia"
)
LONG_REGIONS = frozenset(
    [
        *("new york", "new jersey", "new mexico", "new hampshire", "north carolina", "south carolina"),
        *("north dakota", "south dakota", "west virginia", "rhode island", "united states"),
        *("united kingdom", "south africa", "new zealand", "south korea", "costa rica", "british columbia"),
    ]
)
LANGUAGES = words(
    "english german french italian polish chinese spanish portuguese russian japanese korean dutch swedish"
    " norwegian danish finnish greek turkish arabic hindi czech hungarian latin"
)
NUMBER_WORDS = {
    **{"zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7},
    **{"eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12},
}
POLISH_ENDINGS: tuple[tuple[str, str], ...] = (
    ("owie", "ów"),
    ("owa", "ów"),
    ("awie", "awa"),
    ("awy", "awa"),
    ("awiu", "aw"),
    ("awia", "aw"),
    ("aniu", "ań"),
    ("ania", "ań"),
    ("sku", "sk"),
    ("ska", "sk"),
    ("odzi", "ódź"),
    ("icach", "ice"),
    ("inie", "in"),
    ("ina", "in"),
    ("ynie", "yn"),
    ("yna", "yn"),
    ("yżu", "yż"),
    ("yża", "yż"),
    ("ymie", "ym"),
    ("ymu", "ym"),
    ("yni", "ynia"),
    ("adrycie", "adryt"),
    ("radze", "raga"),
    ("ragi", "raga"),
    ("edniu", "edeń"),
    ("ednia", "edeń"),
)
"""Polish endings after `w` and `dla`, back to the form that gazetteers know."""

CJK_LEAD = re.compile(
    r"^(?:请问|请|告诉我|查询|查一下|查|我想知道|想知道|我要|我想|帮我|给我|看看|搜索|那么|还有|以及|并且|今天|明天|后天|昨天|在|和|与|的|它|是|，|,|\s)+"
)
CJK_TAIL = re.compile(r"(?:的|今天|明天|现在|目前|当前|这里|那里|怎么样|是什么|市的|，|,|\s)+$")
CJK_NOT_PLACE = re.compile(r"什么|怎么|多少|你好|谢谢|我|你|它")


def stem(word: str) -> str:
    """Lower case, English plural and possessive taken off."""
    word = word.lower().replace("’", "'")
    word = word.removesuffix("'s")
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


@lru_cache(maxsize=4096)
def concepts_of(word: str) -> frozenset[str]:
    """The concepts that a word belongs to."""
    word = word.lower()
    found = set()
    for concept, words in CONCEPTS.items():
        for known in words:
            if word == known or (known.endswith("*") and word.startswith(known[:-1])):
                found.add(concept)
    return frozenset(found)


@lru_cache(maxsize=512)
def split_name(name: str) -> tuple[str, ...]:
    """The words of `get_wiki_url`, `getWikiUrl`, `Weather-get_current`, lower case."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return tuple(word.lower() for word in re.split(r"[\W_]+", spaced) if word)


CJK_WORDS: tuple[tuple[str, str], ...] = tuple(
    (word.removesuffix("*"), concept)
    for concept, words in CONCEPTS.items()
    for word in words
    if ord(word[0]) > 0x2E7F
)
