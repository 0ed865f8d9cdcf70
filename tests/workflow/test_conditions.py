"""What ``when`` means, also in the older spelling."""

from __future__ import annotations

import pytest

from tenure.model.errors import ExpressionError
from tenure.workflow.expressions import compile_condition
from tests.workflow.evaluating import holds, value


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("COUNT > 3", True),
        ("COUNT >= 5 and COUNT <= '5' and COUNT < 10", True),
        ("COUNT > 10", False),
        ("1 < COUNT < 6", True),
        ("6 < COUNT < 7", False),
        ("'01' == 1", True),
        ("'1.0' == '1'", True),
        ("' 5 ' == COUNT", True),
        ("'1e1' == '10'", False),
        ("'12e4' == '120e3'", False),
        ("release == '1.4'", True),
        ("release != '1.3'", True),
        ("release == 1.40", True),
        ("ok == true", True),
        ("ok == 'True'", True),
        ("ok == 1", False),
        ("nothing == none", True),
        ("nothing == ''", True),
        ("n == '3'", True),
        ("names == ['b', 'a', 'c']", True),
        ("names == 'b'", False),
        ("'a' in names", True),
        ("'d' not in names", True),
        ("COUNT in [4, 5]", True),
        ("'eu' in zone.name", True),
        ("'name' in zone", True),
        ("'12345678901234567890' == '12345678901234567891'", False),
    ],
)
def test_comparison(condition: str, expected: bool) -> None:
    assert holds(condition) is expected
    assert value(condition) is expected


@pytest.mark.parametrize(
    ("operand", "expected"),
    [
        ("ok", True),
        ("off", False),
        ("n", True),
        ("0", False),
        ("0.0", False),
        ("''", False),
        ("nothing", False),
        ("'false'", False),
        ("'FALSE'", False),
        ("'0'", False),
        ("'no'", False),
        ("'off'", True),
        ("'anything'", True),
        ("[]", False),
        ("names", True),
    ],
)
def test_a_lone_operand(operand: str, expected: bool) -> None:
    assert holds(operand) is expected
    assert holds(f"!{operand}") is not expected
    assert holds(f"{operand} && true") is expected
    assert holds(f"{operand} or false") is expected
    assert holds(f"true if {operand} else false") is expected


@pytest.mark.parametrize(
    ("older", "expected"),
    [
        ("", True),
        ("  ", True),
        ("yes", True),
        ("NO", False),
        ("True", True),
        ("false", False),
        ("${COUNT} == 5", True),
        ("${zone.name} == 'eu'", True),
        ("${zone.inner.deep} == [1, 2]", True),
        ("${hosts.web1.KEY} == v || ok", None),
        ("n == 3 && release == '1.4'", True),
        ("n == 4 || release == '1.4'", True),
        ("n == 4 || release == 'x' && missing", False),
        ("!off && n != 4", True),
        ("!(n == 3)", False),
        ("'a && b || !c ${d}'|length == 17", True),
        ('"a && b || !c ${d}"|length == 17', True),
        ("'it\\'s && b'|length == 9", True),
        ("${{ n == 3 }}", True),
        ("ok == TRUE", True),
    ],
)
def test_the_older_spelling(older: str, expected: bool | None) -> None:
    if expected is None:
        with pytest.raises(ExpressionError, match="'v' is not defined"):
            holds(older)
    else:
        assert holds(older) is expected


def test_what_need_not_be_known_is_not_asked() -> None:
    assert holds("off and missing") is False
    assert holds("ok or missing") is True


@pytest.mark.parametrize("broken", ["${a b} == 1", "${}", "${a..b}", "${1}"])
def test_braces_hold_a_name(broken: str) -> None:
    with pytest.raises(ExpressionError, match=r"names no variable; write \$\{name\}"):
        compile_condition(broken)


@pytest.mark.parametrize("broken", ["false ||", "&& true", "== 5", "|| ok"])
def test_an_empty_side_is_a_mistake(broken: str) -> None:
    with pytest.raises(ExpressionError):
        compile_condition(broken)


def test_an_undefined_name_is_an_error_in_a_condition_too() -> None:
    with pytest.raises(ExpressionError, match="'BACKUP_OK' is not defined"):
        holds("BACKUP_OK")
