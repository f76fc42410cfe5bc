"""Which calls run, which ask a person, which are refused: rules by tool name and arguments.

The first rule that matches decides. Without one, the tool's own `approval` does; without that, what
only reads is allowed and what writes asks. While text that strangers wrote is in the context, a
write that would be allowed asks all the same, unless the rule says that it is meant for that.
"""

import fnmatch
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from assistant_runner.errors import near_words
from assistant_runner.tooling.contract import Tool

Action = Literal["allow", "ask", "deny"]


class PolicyRule(BaseModel):
    """`tool`: a glob over names. `arguments`: globs by argument name, all of which must match.

    Of a list, every entry must match to be allowed; one that matches is enough to ask or to deny.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tool: str = "*"
    action: Action
    arguments: dict[str, str] = {}
    reason: str = ""
    even_with_fetched_text: bool = False

    def matches(self, tool: Tool, arguments: Mapping[str, Any]) -> bool:
        """Whether the rule speaks of this call."""
        return fnmatch.fnmatchcase(tool.name, self.tool) and all(
            name in arguments and self._fits(arguments[name], pattern)
            for name, pattern in self.arguments.items()
        )

    def _fits(self, value: Any, pattern: str) -> bool:
        if isinstance(value, list) and value:
            found = [self._fits(entry, pattern) for entry in value]
            if self.action == "allow" or any(found):
                return all(found) or self.action != "allow"
        return any(fnmatch.fnmatchcase(text, pattern) for text in _texts(value))


class Policy(BaseModel):
    """The rules in order, and what happens to writes that no rule speaks of."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rules: tuple[PolicyRule, ...] = ()
    writes: Action = "ask"

    def idle_rules(self, tools: Mapping[str, Tool]) -> list[str]:
        """Rules that match no call of these tools by what looks like a slip, in words.

        A rule for a tool that is not here may come from a file that others extend: only a near name is one.
        """
        found = []
        for rule in self.rules:
            spoken = [tool for name, tool in tools.items() if fnmatch.fnmatchcase(name, rule.tool)]
            if not spoken and (near := near_words(rule.tool, tools, cutoff=0.8)):
                found.append(
                    f"the policy's rule for {rule.tool!r} speaks of no tool; did you mean {near[0]!r}?"
                )
            for name in rule.arguments if spoken else ():
                if not any(_may_have(tool, name) for tool in spoken):
                    words = f"the policy's rule for {rule.tool!r} never matches"
                    found.append(f"{words}: there is no argument {name!r}")
        return found

    def decide(self, tool: Tool, arguments: Mapping[str, Any], *, fetched_text: bool = False) -> "Verdict":
        """What to do with this call and why."""
        verdict = self._verdict(tool, arguments)
        if verdict.action == "allow" and fetched_text and tool.effects == "write" and not verdict.firm:
            return Verdict("ask", f"{tool.name} writes, and text from strangers is in the context")
        return verdict

    def _verdict(self, tool: Tool, arguments: Mapping[str, Any]) -> "Verdict":
        for rule in self.rules:
            if rule.matches(tool, arguments):
                words = rule.reason or f"the policy says {rule.action} for {rule.tool!r}"
                return Verdict(rule.action, words, rule.even_with_fetched_text)
        if tool.approval == "always":
            return Verdict("ask", f"{tool.name} always asks")
        if tool.approval == "never" or tool.effects == "read":
            return Verdict("allow", "")
        return Verdict(self.writes, f"{tool.name} writes")


@dataclass(frozen=True, slots=True)
class Verdict:
    """`firm`: an allowance that holds with fetched text in the context as well."""

    action: Action
    reason: str
    firm: bool = False


def _may_have(tool: Tool, argument: str) -> bool:
    schema = tool.parameters
    return argument in schema.get("properties", {}) or schema.get("additionalProperties") is not False


def _texts(value: Any) -> list[str]:
    """The value as a pattern may spell it: 5.0 also as 5, which is the same number."""
    if isinstance(value, float) and value.is_integer():
        return [json.dumps(value), str(int(value))]
    return [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)]
