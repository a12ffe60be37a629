"""Mutants: one small change each to a file's syntax tree.

Left as they are, since no test should ask for them: docstrings, annotations and types, `__all__`,
texts (what is raised or warned, and what is assigned for that alone; the parts of f-strings; a
registry entry's `paper`, `colour` and `label`), tables for the terminal (`__rich__`), and what
states that something cannot happen (`assert`, the `strict` of `zip`; the `frozen` of a dataclass,
which the type checker holds everyone to). Nor are two arguments swapped of which the order does not
count (those of `min`, `max` and the like).
"""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import CodeType

Place = tuple[tuple[str, int | None], ...]  # from the module down: a field, and where in its list
Unit = tuple[str, int]  # the qualified name of a function and its first line, decorators included

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
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
PAIRS = (
    ("min", "max"), ("any", "all"), ("argmin", "argmax"), ("amin", "amax"),
    ("nanmin", "nanmax"), ("minimum", "maximum"), ("clamp_min", "clamp_max"), ("floor", "ceil"),
    ("zeros", "ones"), ("zeros_like", "ones_like"), ("startswith", "endswith"),
    ("partition", "rpartition"), ("removeprefix", "removesuffix"),
)  # fmt: skip
OPPOSITES = {one: other for pair in PAIRS for one, other in (pair, pair[::-1])}
TYPES_LAST = {"isinstance", "issubclass", "hasattr", "getattr", "setattr", "cast"}
EITHER_WAY = {"min", "max", "minimum", "maximum", "equal"}  # of two, as functions
SAID = {"message", "advice"}  # what a finding or a refusal says
SHOWN = {"paper", "colour", "label"}  # what an entry of a registry is shown with
UNSEEN = {"annotation", "returns", "type_comment", "type_params", "ctx", "format_spec"}


@dataclass(frozen=True)
class Mutant:
    """One change: where it is, what it was and what it is now."""

    file: str
    line: int
    function: str  # its qualified name; empty for what runs when the file is imported
    kind: str
    before: str
    after: str
    place: Place = field(repr=False)
    replacement: ast.AST | None = field(repr=False, compare=False)  # None: left out of its list
    unit: Unit | None = field(repr=False)  # the outermost function around it
    lines: tuple[int, int] = field(repr=False)  # of its statement, or of a statement's head
    text: str = ""  # the line itself

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What names the change when lines have moved."""
        return self.file, self.function, self.text, self.before, self.after


def mutants_of(source: str, file: str) -> list[Mutant]:
    """All mutants of a file, in the order of its text."""
    texts = [line.strip() for line in source.splitlines()]
    found = _body(ast.parse(source), "body", _Around())
    return [replace(mutant, file=file, text=texts[mutant.line - 1]) for mutant in found]


def mutated_code(source: str, mutant: Mutant, filename: str) -> CodeType:
    """The file's code with one change, compiled as if it were the file."""
    tree = ast.parse(source)
    *way, (last, index) = mutant.place
    parent: ast.AST = tree
    for name, at in way:
        parent = getattr(parent, name) if at is None else getattr(parent, name)[at]
    new = copy.deepcopy(mutant.replacement)
    if index is None:
        setattr(parent, last, new)
    elif new is None:
        del getattr(parent, last)[index]
    else:
        getattr(parent, last)[index] = new
    return compile(ast.fix_missing_locations(tree), filename, "exec")


def function_code(code: CodeType, unit: Unit) -> CodeType | None:
    """The code of one function within that of its file."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if (constant.co_qualname, constant.co_firstlineno) == unit:
                return constant
            if (inside := function_code(constant, unit)) is not None:
                return inside
    return None


@dataclass(frozen=True)
class _Around:
    """What surrounds a node."""

    place: Place = ()
    names: tuple[str, ...] = ()  # of classes and functions
    unit: Unit | None = None
    lines: tuple[int, int] = (0, 0)
    texts: frozenset[str] = frozenset()  # variables that are only raised
    known: frozenset[str] = frozenset()  # variables that have a value before the statement

    def inside(self, name: str, index: int | None = None) -> "_Around":
        return replace(self, place=(*self.place, (name, index)))

    def mutant(self, node: ast.AST, kind: str, new: ast.AST | None, shown: ast.AST) -> Mutant:
        if new is not None and "lineno" in node._attributes:
            ast.copy_location(new, node)
        after = "nothing" if new is None else ast.unparse(new)
        return Mutant(
            file="",
            line=getattr(node, "lineno", self.lines[0]),
            function=".".join(self.names),
            kind=kind,
            before=ast.unparse(shown),
            after=after,
            place=self.place,
            replacement=new,
            unit=self.unit,
            lines=self.lines,
        )


def _body(owner: ast.AST, name: str, around: _Around) -> Iterator[Mutant]:
    """Mutants of a list of statements."""
    known = around.known
    for index, statement in enumerate(getattr(owner, name, ())):
        if isinstance(statement, ast.stmt):
            yield from _statement(statement, replace(around, known=known).inside(name, index))
            known |= _assigned(statement)
        else:  # a case of a match, a handler of a try
            yield from _node(statement, around.inside(name, index))


def _statement(node: ast.stmt, around: _Around) -> Iterator[Mutant]:
    if _is_left_alone(node, around):
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from _function(node, around)
        return
    if isinstance(node, ast.ClassDef):
        inner = replace(around, names=(*around.names, node.name))
        yield from _children(node, replace(inner, lines=(node.lineno, node.lineno)))
        return
    head = _head(node)
    lines = (head.lineno, head.end_lineno or head.lineno)
    around = replace(around, lines=lines)
    yield from _removed(node, around)
    if not isinstance(node, ast.Raise):
        yield from _changed_statement(node, around)
        yield from _children(node, around)


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, around: _Around) -> Iterator[Mutant]:
    if node.name == "__rich__":
        return
    names = (*around.names, node.name)
    outer = replace(around, names=names, lines=(node.lineno, node.lineno))
    for index, decorator in enumerate(node.decorator_list):
        yield from _node(decorator, outer.inside("decorator_list", index))
    yield from _node(node.args, outer.inside("args"))
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    given = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
    inner = replace(
        outer,
        unit=around.unit or (".".join(names), first),
        texts=around.texts | _only_raised(node),
        known=around.known | given,
    )
    yield from _body(node, "body", inner)


def _is_left_alone(node: ast.stmt, around: _Around) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Assert | ast.Global | ast.Nonlocal):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True  # a docstring
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        return True
    names = [target.id for target in _targets(node) if isinstance(target, ast.Name)]
    if "__all__" in names or (names and set(names) <= around.texts | SAID):
        return True
    value = getattr(node, "value", None)
    return bool(names) and around.unit is None and _is_type(value)


def _removed(node: ast.stmt, around: _Around) -> Iterator[Mutant]:
    """The statement left out, where what follows does not miss a name by that."""
    if isinstance(node, ast.Expr):
        removable = isinstance(node.value, ast.Call)
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        removable = around.unit is not None and all(
            isinstance(target, ast.Subscript | ast.Attribute)
            or (isinstance(target, ast.Name) and target.id in around.known)
            for target in _targets(node)
        )
        removable = removable and node.value is not None
    else:
        removable = isinstance(node, ast.Raise | ast.AugAssign | ast.Delete)
    if removable:
        yield around.mutant(node, "statement removed", ast.Pass(), node)


def _changed_statement(node: ast.stmt, around: _Around) -> Iterator[Mutant]:
    if isinstance(node, ast.Return) and node.value is not None:
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            new: ast.stmt = ast.Return(ast.Constant(None))
            yield around.mutant(node, "nothing returned", new, node)
    elif isinstance(node, ast.Break):
        yield around.mutant(node, "loop", ast.Continue(), node)
    elif isinstance(node, ast.Continue):
        yield around.mutant(node, "loop", ast.Break(), node)
    elif isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
        changed = copy.copy(node)
        changed.op = ARITHMETIC[type(node.op)]()
        yield around.mutant(node, "arithmetic", changed, node)
    elif isinstance(node, ast.If | ast.While):
        yield from _negated(node.test, around.inside("test"))


def _node(node: ast.AST, around: _Around) -> Iterator[Mutant]:
    """Mutants of an expression, or of a part of a statement, and of what is inside."""
    if isinstance(node, ast.stmt):
        yield from _statement(node, around)
        return
    if isinstance(node, ast.JoinedStr):
        for index, value in enumerate(node.values):
            if isinstance(value, ast.FormattedValue):
                yield from _node(value.value, around.inside("values", index).inside("value"))
        return
    if isinstance(node, ast.Subscript) and _name(node.value) == "Literal":
        return
    if isinstance(node, ast.Compare):
        yield from _comparison(node, around)
    elif isinstance(node, ast.BoolOp):
        yield from _logic(node, around)
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.UAdd):
        yield around.mutant(node, "sign or negation", node.operand, node)
    elif isinstance(node, ast.BinOp):
        yield from _arithmetic(node, around)
    elif isinstance(node, ast.IfExp):
        yield from _negated(node.test, around.inside("test"))
    elif isinstance(node, ast.comprehension):
        for index, test in enumerate(node.ifs):
            yield around.inside("ifs", index).mutant(test, "condition removed", None, test)
    elif isinstance(node, ast.Constant):
        yield from _constant(node, around)
    elif isinstance(node, ast.Call):
        yield from _call(node, around)
    yield from _children(node, around)


def _children(node: ast.AST, around: _Around) -> Iterator[Mutant]:
    is_text = isinstance(node, ast.Call) and _name(node.func) == "warn"
    for name, value in ast.iter_fields(node):
        if name in UNSEEN or is_text:
            continue
        if isinstance(value, ast.AST):
            yield from _node(value, around.inside(name))
        elif name in ("body", "orelse", "finalbody", "handlers", "cases") and value:
            yield from _body(node, name, around)
        elif isinstance(value, list):
            for index, child in enumerate(value):
                if isinstance(child, ast.AST) and not _is_passed_over(node, name, index, child):
                    yield from _node(child, around.inside(name, index))


def _is_passed_over(node: ast.AST, name: str, index: int, child: ast.AST) -> bool:
    if isinstance(child, ast.keyword):
        called = _name(node.func) if isinstance(node, ast.Call) else ""
        stated = {("zip", "strict"), ("dataclass", "frozen")}
        return child.arg in SHOWN | SAID or (called, child.arg) in stated
    if isinstance(node, ast.Call) and name == "args" and index:
        return _name(node.func) in ("isinstance", "issubclass")
    return isinstance(node, ast.Dict) and name == "keys" and child is None


def _comparison(node: ast.Compare, around: _Around) -> Iterator[Mutant]:
    for index, operator in enumerate(node.ops):
        for other in COMPARISONS[type(operator)]:
            changed = copy.copy(node)
            changed.ops = [*node.ops[:index], other(), *node.ops[index + 1 :]]
            yield around.mutant(node, "comparison", changed, node)


def _logic(node: ast.BoolOp, around: _Around) -> Iterator[Mutant]:
    changed = copy.copy(node)
    changed.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
    yield around.mutant(node, "and, or", changed, node)
    for index in range(len(node.values)):
        rest = [*node.values[:index], *node.values[index + 1 :]]
        new: ast.expr = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        yield around.mutant(node, "condition removed", copy.copy(new), node)


def _arithmetic(node: ast.BinOp, around: _Around) -> Iterator[Mutant]:
    texts = (ast.JoinedStr, ast.Constant)
    is_text = any(
        isinstance(side, texts) and isinstance(getattr(side, "value", ""), str | bytes)
        for side in (node.left, node.right)
    )
    if type(node.op) in ARITHMETIC and not is_text:
        changed = copy.copy(node)
        changed.op = ARITHMETIC[type(node.op)]()
        yield around.mutant(node, "arithmetic", changed, node)


def _negated(test: ast.expr, around: _Around) -> Iterator[Mutant]:
    """The condition turned round; comparisons and `not` are turned round by rules of their own."""
    if not isinstance(test, ast.Compare | ast.UnaryOp | ast.Constant):
        yield around.mutant(test, "condition negated", ast.UnaryOp(ast.Not(), test), test)


def _constant(node: ast.Constant, around: _Around) -> Iterator[Mutant]:
    value: object = node.value
    if isinstance(value, bool):
        new: object = not value
    elif isinstance(value, int | float):
        new = value + 1
    elif isinstance(value, str) and value:
        new = f"{value}~"
    elif isinstance(value, bytes) and value:
        new = value + b"~"
    else:
        return
    if new != value:  # infinity stays what it is
        yield around.mutant(node, "constant", ast.Constant(new), node)


def _call(node: ast.Call, around: _Around) -> Iterator[Mutant]:
    name = _name(node.func)
    if name in OPPOSITES:
        changed = copy.deepcopy(node)
        if isinstance(changed.func, ast.Name):
            changed.func.id = OPPOSITES[name]
        elif isinstance(changed.func, ast.Attribute):
            changed.func.attr = OPPOSITES[name]
        yield around.mutant(node, "another function", changed, node)
    if name == "sorted" and not node.keywords:
        changed = copy.deepcopy(node)
        changed.func = ast.Name("list", ast.Load())
        yield around.mutant(node, "another function", changed, node)
    last = node.args[-2:]
    if len(last) == 2 and name not in TYPES_LAST and not _is_either_way(node):
        starred = any(isinstance(argument, ast.Starred) for argument in last)
        if not starred and ast.unparse(last[0]) != ast.unparse(last[1]):
            changed = copy.copy(node)
            changed.args = [*node.args[:-2], last[1], last[0]]
            yield around.mutant(node, "arguments swapped", changed, node)


def _is_either_way(call: ast.Call) -> bool:
    """Whether two values are given whose order does not count; `tensor.max(x, 0)` is another."""
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr in ("min", "max")
    plain = len(call.args) == 2 and not call.keywords and not is_method
    return plain and _name(call.func) in EITHER_WAY


def _name(function: ast.expr) -> str:
    """What is called, without the object that it belongs to."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _head(node: ast.stmt) -> ast.expr | ast.stmt:
    """The part of a statement that runs at its line: of compound ones what precedes the colon."""
    if isinstance(node, ast.If | ast.While):
        return node.test
    if isinstance(node, ast.For | ast.AsyncFor):
        return node.iter
    if isinstance(node, ast.With | ast.AsyncWith):
        return node.items[0].context_expr
    return node


def _targets(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else []


def _assigned(node: ast.stmt) -> frozenset[str]:
    """Names that a statement gives a value to."""
    stored = (n.id for n in ast.walk(node) if isinstance(n, ast.Name) and _is_store(n))
    return frozenset(stored)


def _is_store(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _only_raised(function: ast.AST) -> frozenset[str]:
    """Variables of a function that are read inside `raise` alone: they hold a message."""
    raised = [n for node in ast.walk(function) if isinstance(node, ast.Raise) for n in _loads(node)]
    everywhere = _loads(function)
    return frozenset(name for name in raised if raised.count(name) == everywhere.count(name))


def _loads(node: ast.AST) -> list[str]:
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return [name.id for name in names if isinstance(name.ctx, ast.Load)]


def _is_type(node: ast.AST | None) -> bool:
    """Whether an expression can only be a type: `float | Mapping[str, float]`, `Literal["a"]`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _is_type_part(node.left) and _is_type_part(node.right)
    return isinstance(node, ast.Subscript) and _is_type_part(node)


def _is_type_part(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript):
        name = _name(node.value)
        return name[:1].isupper() or name in ("dict", "list", "tuple", "set", "type")
    if isinstance(node, ast.BinOp):
        return _is_type(node)
    return isinstance(node, ast.Name | ast.Attribute | ast.Constant)
