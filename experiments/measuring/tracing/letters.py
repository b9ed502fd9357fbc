"""Axes by the letters of the shape legend, read off einsum equations, which the code writes with them."""

# lower-case letters of our equations whose upper case has another meaning in the legend of variants/protocols.py
_OWN = {"n": "nope", "r": "rope", "c": "C", "l": "L"}


def of_equation(equation: str) -> list[tuple[str, ...]]:
    """``bqghk,bgtk->bqght`` as letters of each operand and of the result; with groups, h counts heads of one group."""
    operands, _, result = equation.replace(" ", "").partition("->")
    grouped = "g" in result
    return [tuple(_letter(axis, grouped) for axis in part) for part in (*operands.split(","), result)]


def _letter(axis: str, grouped: bool) -> str:
    return "H/G" if axis == "h" and grouped else _OWN.get(axis, axis.upper())
