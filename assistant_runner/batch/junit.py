"""JUnit XML of a batch: a test case per row, so that CI systems show which rows failed."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(path: Path, rows: Iterable[Mapping[str, Any]], *, name: str) -> None:
    """One suite. A row that failed its checks is a failure, a row without an answer an error."""
    cases, failures, errors, seconds = 0, 0, 0, 0.0
    body = path.with_name(path.name + ".part")
    with body.open("w", encoding="utf-8") as stream:
        for row in rows:
            cases += 1
            took = float(row.get("duration_s") or 0)
            seconds += took
            label = str(row["id"]) if row.get("id") is not None else f"line {row.get('line')}"
            stream.write(
                f"  <testcase classname={_attr(name)} name={_attr(label)} time={_attr(f'{took:.3f}')}"
            )
            if row["status"] != "ok":
                errors += 1
                error = row.get("error") or {}
                stream.write(
                    f">\n    <error type={_attr(error.get('kind', row['status']))}"
                    f" message={_attr(error.get('message', ''))}/>\n  </testcase>\n"
                )
            elif row.get("passed") is False:
                failures += 1
                missed = [check for check in row.get("checks") or [] if not check["passed"]]
                why = "; ".join(check["why"] for check in missed)
                stream.write(
                    f">\n    <failure type={_attr(missed[0]['name'] if missed else 'check')}"
                    f" message={_attr(why)}>{escape(_clean(str(row.get('answer') or '')))}</failure>\n"
                    "  </testcase>\n"
                )
            else:
                stream.write("/>\n")
    with path.open("w", encoding="utf-8") as whole, body.open(encoding="utf-8") as stream:
        whole.write('<?xml version="1.0" encoding="UTF-8"?>\n')
        whole.write(
            f"<testsuite name={_attr(name)} tests={_attr(cases)} failures={_attr(failures)}"
            f" errors={_attr(errors)} time={_attr(f'{seconds:.3f}')}>\n"
        )
        for line in stream:
            whole.write(line)
        whole.write("</testsuite>\n")
    body.unlink()


def _attr(value: Any) -> str:
    return quoteattr(_clean(str(value)), {"\n": "&#10;"})


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
