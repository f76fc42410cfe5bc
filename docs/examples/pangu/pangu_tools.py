"""Four tools: a class with `run`, a function of one text, and two that are made from JSON Schema."""

import json
from typing import Annotated

from assistant_runner import dynamic_tool, tool

CAPITAL = {"x公司": "x亿人民币", "y公司": "y亿人民币", "z公司": "z亿人民币"}


@tool(
    name="reserve_meeting_room",
    description="预订会议室",
    when_to_use="请在需要预订会议室时调用此工具，使用前需要先确认会议开始时间、结束时间和会议室。",
    input_description="会议开始结束时间，会议室",
    output_description="预订会议室的结果",
    effects="write",
    approval="never",
)
class ReserveMeetingRoom:
    """预订会议室"""

    def run(
        self,
        start: Annotated[str, "会议开始时间，格式为HH:mm"],
        end: Annotated[str, "会议结束时间，格式为HH:mm"],
        meetingRoom: Annotated[str, "会议室"],  # noqa: N803
    ) -> str:
        return f"{start}到{end}的{meetingRoom}已预订成功"


@tool(description="查询一家公司的注册资本，一次只能查询一家公司", output_description="注册资本")
def capital(name: Annotated[str, "公司名称，一次只能查询一家公司"]) -> str:
    """The registered capital of a company; 未知 for one that is not in the table."""
    return CAPITAL.get(name, "未知")


add = dynamic_tool(
    "add",
    "计算两个整数的和",
    lambda given: given["a"] + given["b"],
    input_schema=json.dumps(
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        }
    ),
    output_schema=json.dumps({"type": "integer"}),
)

charge = dynamic_tool(
    "charge",
    "充值",
    lambda given: f"{given['chargeType']}充值{given['amount']}元成功",
    input_schema={
        "type": "object",
        "properties": {
            "chargeType": {"type": "string", "enum": ["Alipay", "Wechat", "Bankcard"]},
            "amount": {"type": "integer"},
        },
        "required": ["chargeType", "amount"],
    },
    output_schema={"type": "string"},
    effects="write",
    approval="never",
)
