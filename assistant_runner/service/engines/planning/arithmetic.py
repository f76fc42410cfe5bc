"""Simple arithmetic in a question: `What is 2 plus 2?`."""

import ast
import operator
import re
from collections.abc import Callable

WORDS: tuple[tuple[str, str], ...] = (
    (r"multiplied by|times|mal|per|razy|乘以|乘|×|·", "*"),
    (r"divided by|geteilt durch|diviso|podzielone przez|除以|÷", "/"),
    (r"plus|più|dodać|加上|加", "+"),
    (r"minus|meno|odjąć|减去|减|−", "-"),
    (r"to the power of|hoch|\^", "**"),
)
OPERATORS: dict[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.Mod: operator.mod,
}
LARGEST = 10**15
HIGHEST_POWER = 64


def find_arithmetic(sentence: str) -> str | None:
    """The sum in a sentence with its result (`2 + 2 = 4`); None if there is none to do."""
    text = f" {sentence} "
    for words, sign in WORDS:
        text = re.sub(rf"(?<=[\d)\s])\s*(?:{words})\s*(?=[\d(\s-])", f" {sign} ", text, flags=re.IGNORECASE)
    for found in re.finditer(r"[-(]*\d[\d\s.()+*/%-]*[\d)]", text):
        expression = " ".join(found.group().split())
        if not re.search(r"\d\)*\s*(?:\*\*|[-+*/%])\s*[-(]*\d", expression) or _looks_like_a_date(expression):
            continue
        try:
            value = _evaluate(ast.parse(expression, mode="eval").body)
        except (SyntaxError, ValueError, ZeroDivisionError, OverflowError):
            continue
        return f"{expression} = {_show(value)}"
    return None


def _looks_like_a_date(expression: str) -> bool:
    return re.fullmatch(r"\d{4}-\d{2}(-\d{2})?|\d+(-\d+){2,}", expression) is not None


def _evaluate(node: ast.AST) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = _evaluate(node.left), _evaluate(node.right)
        if isinstance(node.op, ast.Pow) and abs(right) > HIGHEST_POWER:
            raise ValueError("power too high")
        value = OPERATORS[type(node.op)](left, right)
        if isinstance(value, complex) or abs(value) > LARGEST:
            raise ValueError("too large")
        return value
    raise ValueError("not arithmetic")


def _show(value: float) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return f"{value:.10g}" if isinstance(value, float) else str(value)
