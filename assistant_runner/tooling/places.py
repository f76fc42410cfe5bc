"""Place names as people and models write them: `San Francisco, CA`, `White Fells OL`, `Łódź`.

The weather and the wiki tool share it: the name is searched, the rest are hints by which to choose
(cases 105, 107, 108).
"""

import re
import unicodedata
from dataclasses import dataclass

US_STATES = {
    "AL": "Alabama", "AK": "Alaska", "AZ": "Arizona", "AR": "Arkansas", "CA": "California",
    "CO": "Colorado", "CT": "Connecticut", "DE": "Delaware", "DC": "District of Columbia",
    "FL": "Florida", "GA": "Georgia", "HI": "Hawaii", "ID": "Idaho", "IL": "Illinois",
    "IN": "Indiana", "IA": "Iowa", "KS": "Kansas", "KY": "Kentucky", "LA": "Louisiana",
    "ME": "Maine", "MD": "Maryland", "MA": "Massachusetts", "MI": "Michigan", "MN": "Minnesota",
    "MS": "Mississippi", "MO": "Missouri", "MT": "Montana", "NE": "Nebraska", "NV": "Nevada",
    "NH": "New Hampshire", "NJ": "New Jersey", "NM": "New Mexico", "NY": "New York",
    "NC": "North Carolina", "ND": "North Dakota", "OH": "Ohio", "OK": "Oklahoma", "OR": "Oregon",
    "PA": "Pennsylvania", "RI": "Rhode Island", "SC": "South Carolina", "SD": "South Dakota",
    "TN": "Tennessee", "TX": "Texas", "UT": "Utah", "VT": "Vermont", "VA": "Virginia",
    "WA": "Washington", "WV": "West Virginia", "WI": "Wisconsin", "WY": "Wyoming",
    "PR": "Puerto Rico",
}  # fmt: skip
OTHER_REGIONS = {
    "AB": "Alberta", "BC": "British Columbia", "MB": "Manitoba", "NB": "New Brunswick",
    "NL": "Newfoundland and Labrador", "NS": "Nova Scotia", "ON": "Ontario",
    "PE": "Prince Edward Island", "QC": "Quebec", "SK": "Saskatchewan",
    "NSW": "New South Wales", "QLD": "Queensland", "VIC": "Victoria", "TAS": "Tasmania",
}  # fmt: skip
COUNTRIES = {
    "US": "United States", "USA": "United States", "U.S.": "United States", "U.S.A.": "United States",
    "United States of America": "United States", "UK": "United Kingdom", "GB": "United Kingdom",
    "Great Britain": "United Kingdom", "UAE": "United Arab Emirates", "Deutschland": "Germany",
    "Polska": "Poland", "Czech Republic": "Czechia", "The Netherlands": "Netherlands",
    "Holland": "Netherlands", "Republic of Korea": "South Korea", "Korea": "South Korea",
    "Russian Federation": "Russia", "People's Republic of China": "China", "Burma": "Myanmar",
    "Ivory Coast": "Côte d'Ivoire", "Viet Nam": "Vietnam", "Republic of Ireland": "Ireland",
    "Österreich": "Austria", "Schweiz": "Switzerland", "日本": "Japan",
    "中国": "China", "Italia": "Italy", "España": "Spain", "Türkiye": "Turkey",
}  # fmt: skip
OFTEN_NAMED = (
    "Argentina", "Australia", "Austria", "Bangladesh", "Belgium", "Bolivia", "Brazil", "Bulgaria",
    "Canada", "Chile", "China", "Colombia", "Croatia", "Cuba", "Czechia", "Denmark", "Ecuador", "Egypt",
    "England", "Estonia", "Ethiopia", "Finland", "France", "Germany", "Ghana", "Greece", "Hungary",
    "Iceland", "India", "Indonesia", "Iran", "Iraq", "Ireland", "Israel", "Italy", "Japan", "Jordan",
    "Kenya", "Latvia", "Lebanon", "Lithuania", "Malaysia", "Malta", "Mexico", "Morocco", "Nepal",
    "Netherlands", "New Zealand", "Nigeria", "Norway", "Pakistan", "Peru", "Philippines", "Poland",
    "Portugal", "Romania", "Russia", "Saudi Arabia", "Scotland", "Serbia", "Slovakia", "Slovenia",
    "South Africa", "South Korea", "Spain", "Sweden", "Switzerland", "Taiwan", "Tanzania", "Thailand",
    "Tunisia", "Turkey", "Uganda", "Ukraine", "Uruguay", "Venezuela", "Vietnam", "Wales",
)  # fmt: skip
"""Countries that people write after a city without a comma."""
REGION_NAMES = {**OTHER_REGIONS, **US_STATES}
SAME_REGIONS = {"District of Columbia": "Washington, D.C."}
"""Regions with two names in use."""


@dataclass(frozen=True, slots=True)
class Place:
    """A name to search, and the hints after it as they were written."""

    name: str
    hints: tuple[str, ...] = ()

    def full(self) -> str:
        """The name with long forms of the hints: `San Francisco, California`."""
        return ", ".join([self.name, *(long_form(hint) for hint in self.hints)])


def split_place(text: str) -> Place:
    """The name before the first comma and what follows it, blanks tidied."""
    parts = [" ".join(part.split()) for part in text.split(",")]
    parts = [part for part in parts if part]
    return Place(parts[0], tuple(parts[1:])) if parts else Place("")


def split_last_word(text: str) -> Place | None:
    """`White Fells OL` as name and hint, if its last words look like a region; None otherwise."""
    words = text.split()
    names = (*REGION_NAMES.values(), *COUNTRIES, *COUNTRIES.values(), *OFTEN_NAMED)
    known = {fold(name) for name in names}
    for count in (2, 1):
        if len(words) <= count:
            continue
        tail = " ".join(words[-count:])
        if fold(tail) in known or (count == 1 and re.fullmatch(r"[A-Z]{2,3}", tail)):
            return Place(" ".join(words[:-count]), (tail,))
    return None


def long_form(hint: str) -> str:
    """`CA` as `California`, `D.C.` as `District of Columbia`, `usa` as `United States`; else as it is.

    Two letters that name a state and a country are the state: that is what `city, CA` means.
    """
    code = hint.replace(".", "").upper()
    if len(code) <= 3 and (found := REGION_NAMES.get(code) or COUNTRIES.get(code)):
        return found
    return COUNTRIES.get(hint) or COUNTRIES.get(hint.title(), hint)


def fold(text: str) -> str:
    """The text without case, accents, punctuation and double blanks, for comparing names."""
    plain = unicodedata.normalize("NFKD", text.casefold()).replace("ł", "l").replace("ß", "ss")
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return " ".join(re.sub(r"[^\w]+", " ", plain).split())


def same_name(one: str, other: str) -> bool:
    """Whether two names are the same but for case, accents and punctuation."""
    return fold(one) == fold(other)


def hint_fits(hint: str, *names: str | None) -> bool:
    """Whether a hint speaks of one of the names (regions, countries, their codes).

    A code that is in no table fits a name that starts with its first letter and holds the others in
    order: `OL` fits `Oreland`.
    """
    wanted = {fold(hint), fold(long_form(hint))}
    wanted |= {fold(SAME_REGIONS[name]) for name in (hint, long_form(hint)) if name in SAME_REGIONS}
    known = [fold(name) for name in names if name]
    known += [fold(COUNTRIES[name]) for name in names if name and name in COUNTRIES]
    if wanted & set(known):
        return True
    if hint.isupper() and len(hint) <= 3 and long_form(hint) == hint:
        pattern = re.compile("^" + ".*".join(re.escape(letter) for letter in hint.casefold()))
        return any(pattern.search(name) for name in known if len(name) > len(hint))
    return False
