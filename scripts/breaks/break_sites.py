"""Finds every place of a module that can be broken, and how.

Always: a break replaces the text of one expression or statement, and every line keeps its number.
Never: break what nobody can observe by design: log lines, docstrings, annotations, decorators, and
assertions; or the number that a constant of a module stands for.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
SUMS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
LOGS = ("log.", "_log.", "logger.", "self._log.", "self.log.")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Break:
    """One change that makes a module wrong."""

    file: str
    line: int
    place: str
    """Qualified name of the function; empty for what runs when the module is imported."""
    old: str
    new: str
    text: str
    """The line in which the old text begins, without its indentation."""
    begin: int
    """Where the old text begins in the file, in bytes, and where it ends."""
    end: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.old}  ->  {self.new}"

    def applied_to(self, source: str) -> str:
        raw = source.encode()
        old = raw[self.begin : self.end].decode()
        new = self.new if self.new == "pass" else f"({self.new}{chr(10) * old.count(chr(10))})"
        if self.new == "pass":
            new += "\n" * old.count("\n")
        return (raw[: self.begin] + new.encode() + raw[self.end :]).decode()


def breaks_of(file: str, source: str) -> list[Break]:
    """Returns all breaks of a module, in the order of its lines."""
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    return finder.found


def short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 110 else f"{words[:107]}..."


class _Finder(ast.NodeVisitor):
    def __init__(self, file: str, source: str) -> None:
        self.found: list[Break] = []
        self._file = file
        self._raw = source.encode()
        self._starts = [0]
        for line in self._raw.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._names: list[str] = []
        self._functions = 0

    # where we are

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._names.append(node.name)
        for child in node.body:
            self.visit(child)
        self._names.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def _function(self, node: Function) -> None:
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        self._names += [node.name, "<locals>"]
        self._functions += 1
        for child in node.body:
            self.visit(child)
        self._functions -= 1
        del self._names[-2:]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and not self._is_named_number([node.target], node.value):
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Skips what stands in f-strings: it is wording, and has no position in Python 3.11."""

    def visit_keyword(self, node: ast.keyword) -> None:
        """Skips `strict=True` of zip, which is an assertion."""
        if node.arg != "strict":
            self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Skips assertions: they hold, so that no test can see them go."""

    # what can be broken

    def visit_Compare(self, node: ast.Compare) -> None:
        for place, operator in enumerate(node.ops):
            for other in COMPARISONS[type(operator)]:
                changed = copy.deepcopy(node)
                changed.ops[place] = other()
                self._add(node, ast.unparse(changed))
        for side in (node.left, *node.comparators):
            if isinstance(side, ast.Constant) and isinstance(side.value, str):
                self._add(side, repr(side.value + "x"))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        changed = copy.copy(node)
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._add(node, ast.unparse(changed))
        for place in range(len(node.values)):
            rest = [value for number, value in enumerate(node.values) if number != place]
            self._add(node, ast.unparse(rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        is_wording = isinstance(node.left, ast.JoinedStr) or isinstance(node.right, ast.JoinedStr)
        if (other := SUMS.get(type(node.op))) and not is_wording:
            self._add(node, ast.unparse(ast.BinOp(node.left, other(), node.right)))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub):
            self._add(node, ast.unparse(node.operand))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        match node.value:
            case bool():
                self._add(node, repr(not node.value))
            case int() | float():
                self._add(node, repr(node.value + 1))
            case bytes():
                self._add(node, repr(node.value + b"x"))

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str) and self._functions:
            self._add(node.slice, repr(node.slice.value + "x"))
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test).endswith("TYPE_CHECKING") or "__name__" in ast.unparse(node.test):
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._negate(node.test)
        for child in ast.iter_child_nodes(node):
            if child is not node.test or not isinstance(child, ast.Constant):
                self.visit(child)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
            self._add(test, "True")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self._add(node, "pass")
        elif not (isinstance(node.value, ast.Constant) and not node.value.value):  # None means the same to callers
            self._add(node.value, "None")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func).startswith(LOGS):
            return
        if not isinstance(node.value, ast.Yield | ast.YieldFrom):
            self._add(node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        if node.exc is None or "AssertionError" not in ast.unparse(node.exc):
            self._add(node, "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if self._is_named_number(node.targets, node.value):
            return
        if self._functions and all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._add(node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add(node, "pass")
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._add(node, "pass")

    def visit_Delete(self, node: ast.Delete) -> None:
        self._add(node, "pass")

    # how it is kept

    def _is_named_number(self, targets: list[ast.expr], value: ast.expr) -> bool:
        """Whether a module gives a number its name here. Tests know it by that name, so a change of
        the number changes what they expect."""
        parts = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Name, ast.Load)
        named = all(isinstance(target, ast.Name) and target.id.isupper() for target in targets)
        return named and not self._names and all(isinstance(part, parts) for part in ast.walk(value))

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare | ast.UnaryOp) and "TYPE_CHECKING" not in ast.unparse(test):
            self._add(test, ast.unparse(ast.UnaryOp(ast.Not(), test)))

    def _add(self, node: ast.expr | ast.stmt, new: str) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        place = ".".join(self._names).removesuffix(".<locals>") if self._functions else ""
        old = self._raw[begin:end].decode()
        text = self._raw[self._starts[node.lineno - 1] : self._starts[node.lineno]].decode().strip()
        self.found.append(Break(self._file, node.lineno, place, short(old), new, text, begin, end))
