"""Small changes of PTX text, to show that the checks notice; and what ptxas may change itself."""

from __future__ import annotations

import re

from .parser import Program


def barriers(text: str) -> int:
    """Count the barriers of a kernel."""
    return len(re.findall(r"\bbar\.sync\b", text))


def without(text: str, number: int) -> str:
    """Remove one of the barriers."""
    return replaced(text, r"[ \t]*bar\.sync[^;]*;", "", number)


def replaced(text: str, pattern: str, new: str, number: int = 0) -> str:
    """Replace one of the places that match a pattern."""
    found = list(re.finditer(pattern, text))
    if number >= len(found):
        raise ValueError(f"{pattern!r} is found {len(found)} times")
    return text[: found[number].start()] + found[number].expand(new) + text[found[number].end() :]


def fusible(program: Program) -> list[str]:
    """List the sums that ptxas may fuse with a product before them, which changes their bits.

    PTX lets it, where neither says how to round. An `fma`, or `mul.rn` and `add.rn`, stay.
    """
    products = {
        line.operands[0]
        for line in program.code
        if line.opcode == "mul" and line.modifiers in {("f32",), ("f64",)}
    }
    return [
        line.text
        for line in program.code
        if line.opcode in {"add", "sub"}
        and line.modifiers in {("f32",), ("f64",)}
        and products.intersection(line.operands[1:])
    ]
