"""File citations: markers in a text that point to results of this run's file searches.

A marker is `【search:result†name】`, both counted from 0 (reference, section 8.1). A model that was
given search results writes the markers; each one that points to a result becomes an annotation.
"""

import re

from assistant_runner.service.core import Core
from assistant_runner.service.store.base import Document

_MARKER = re.compile(r"【(\d+):(\d+)†[^】]*】")


def cite(core: Core, run_id: str, content: list[Document]) -> list[Document]:
    """Annotations for the markers of the last text part that have none yet."""
    texts = [part["text"] for part in content if part["type"] == "text"]
    if not texts or "【" not in texts[-1]["value"]:
        return []
    searches = _searches(core, run_id)
    taken = {annotation.get("start_index") for annotation in texts[-1]["annotations"]}
    found = []
    for match in _MARKER.finditer(texts[-1]["value"]):
        search, result = int(match[1]), int(match[2])
        if match.start() in taken or search >= len(searches) or result >= len(searches[search]):
            continue
        found.append(
            {
                "type": "file_citation",
                "text": match[0],
                "start_index": match.start(),
                "end_index": match.end(),
                "file_citation": {"file_id": searches[search][result]["file_id"]},
            }
        )
    return found


def _searches(core: Core, run_id: str) -> list[list[Document]]:
    """The results of the run's file searches, in the order they were made."""
    rows, _ = core.store.page("thread.run.step", run_id, limit=100, order="asc")
    return [row.extra["results"] for row in rows if "results" in row.extra]
