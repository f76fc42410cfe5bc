"""Stands for a deployment: prints tags, or writes one line to deployments.log. JSON in, JSON out."""

import json
import sys
from pathlib import Path

TAGS = ["v1.2.3", "v1.2.2", "v1.2.1"]


def main() -> None:
    arguments = json.loads(sys.stdin.read() or "{}")
    if sys.argv[1] == "tags":
        print(json.dumps({"tags": TAGS}))
        return
    if arguments["tag"] not in TAGS:
        sys.exit(f"no tag {arguments['tag']}")
    with Path("deployments.log").open("a", encoding="utf-8") as log:
        log.write(f"{arguments['tag']} {arguments['environment']}\n")
    print(json.dumps({"status": "deployed", **arguments}))


main()
