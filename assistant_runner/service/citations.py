"""Annotations for what a text points to (reference, section 8.1).

`【search:result†name】`, both counted from 0, points to a result of this run's file searches: a
`file_citation`. `sandbox:/mnt/data/name` points to a file that code of this run made: a `file_path`.
A model that was shown results and files writes the markers; each that points to one is annotated.
"""

import re

from assistant_runner.service.core import Core
from assistant_runner.service.store.base import Document

_MARKER = re.compile(r"【(\d+):(\d+)†[^】]*】|sandbox:/mnt/data/([\w.-]*\w)")


def cite(core: Core, run_id: str, content: list[Document]) -> list[Document]:
    """Annotations for the markers of the last text part that have none yet."""
    texts = [part["text"] for part in content if part["type"] == "text"]
    if not texts or not _MARKER.search(texts[-1]["value"]):
        return []
    rows, _ = core.store.page("thread.run.step", run_id, limit=100, order="asc")
    searches = [row.extra["results"] for row in rows if "results" in row.extra]
    made = {name: file_id for row in rows for name, file_id in row.extra.get("made", {}).items()}
    taken = {annotation.get("start_index") for annotation in texts[-1]["annotations"]}
    found = []
    for match in _MARKER.finditer(texts[-1]["value"]):
        if match.start() in taken:
            continue
        kind, file_id = _target(match, searches, made)
        if file_id is not None:
            found.append(
                {
                    "type": kind,
                    "text": match[0],
                    "start_index": match.start(),
                    "end_index": match.end(),
                    kind: {"file_id": file_id},
                }
            )
    return found


def _target(
    match: "re.Match[str]", searches: list[list[Document]], made: dict[str, str]
) -> tuple[str, str | None]:
    """What a marker is and the file it points to; None if it points to nothing."""
    if match[3]:
        return "file_path", made.get(match[3])
    search, result = int(match[1]), int(match[2])
    if search < len(searches) and result < len(searches[search]):
        return "file_citation", str(searches[search][result]["file_id"])
    return "file_citation", None
