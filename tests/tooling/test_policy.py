"""Rules of a policy, alone."""

import pytest

from assistant_runner.tooling.contract import Tool
from assistant_runner.tooling.policy import Policy, PolicyRule

PARAMETERS = {"type": "object", "properties": {"amount": {"type": "number"}}, "additionalProperties": False}
PAY = Tool("pay_bill", "Pay a bill", PARAMETERS, lambda amount: None, effects="write")


@pytest.mark.parametrize("amount", [5, 5.0])
@pytest.mark.parametrize("pattern", ["5", "5*"])
def test_a_number_is_the_same_however_the_model_spells_it(amount: float, pattern: str):
    rule = PolicyRule(tool="pay_bill", action="deny", arguments={"amount": pattern})

    assert Policy(rules=(rule,), writes="allow").decide(PAY, {"amount": amount}).action == "deny"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        pytest.param({"tool": "pay_bil"}, "speaks of no tool; did you mean 'pay_bill'?", id="tool"),
        pytest.param({"tool": "pay*", "arguments": {"amuont": "5"}}, "no argument 'amuont'", id="argument"),
        pytest.param({"tool": "pay*", "arguments": {"amount": "5"}}, None, id="fits"),
        pytest.param({"tool": "delete_user"}, None, id="of-another-assistant"),
        pytest.param({"tool": "delete_*"}, None, id="glob"),
    ],
)
def test_a_rule_that_can_match_nothing_is_named(rule: dict[str, object], words: str | None):
    policy = Policy(rules=(PolicyRule.model_validate({"action": "deny", **rule}),))

    found = policy.idle_rules({"pay_bill": PAY})

    assert len(found) == (words is not None)
    assert (words or "") in "".join(found)
