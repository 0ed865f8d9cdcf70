"""Values in shell scripts, through real shells: what goes in comes out and nothing else happens."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.model.errors import ExpressionError
from tenure.workflow.render import compile_args
from tenure.workflow.shell_text import Place, places_in
from tenure.workflow.templates import split_template
from tests.workflow.samples import CMD

SHELLS = ("sh", "dash", "bash")
EVIL = "a b  c'\"$(echo pwned)`echo pwned`${HOME}\\ *;|&<>(){}[]!#~\n\t-e %s x"


def run(shell: str, cmd: str, scope: dict[str, Any]) -> bytes:
    done = compile_args({"cmd": cmd}, CMD).render(scope)
    finished = subprocess.run(
        [shell, "-c", done.args["cmd"]],
        env={"PATH": "/usr/bin:/bin", **done.env},
        capture_output=True,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)
NASTY = st.text(alphabet="'\"$`\\ (){}\n;&|*?a=-é\x01\x7f", max_size=30)


@pytest.mark.slow
@settings(max_examples=60)
@given(TEXT | NASTY)
def test_a_variable_comes_out_byte_for_byte(value: str) -> None:
    """By name, as an expression, quoted or not, and the two at once in one script."""
    script = 'printf %s "$v"; printf "|"; printf %s "${{ v }}"; printf "|"; printf %s ${{ v }}'
    for shell in SHELLS:
        assert run(shell, script, {"v": value}) == b"|".join([value.encode()] * 3)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('printf %s "${{ v }}"', EVIL),
        ("printf %s ${{ v }}", EVIL),
        ("printf %s pre${{ v }}post", f"pre{EVIL}post"),
        ('printf %s "x${{ v }}y"', f"x{EVIL}y"),
        ("printf %s 'it'${{ v }}'s'", f"it{EVIL}s"),
        ('printf %s "it\'s" ${{ v }}', f"it's{EVIL}"),
        ('x=${{ v }}; printf %s "$x"', EVIL),
        ('export x=${{ v }}; printf %s "$x"', EVIL),
        ("cat <<EOF\n<${{ v }}>\nEOF\n", f"<{EVIL}>\n"),
        ('cat <<-EOF\n\t"${{ v }}"\n\tEOF\nprintf %s ${{ v }}', f'"{EVIL}"\n{EVIL}'),
        ("cat << EOF\n${{ v }}\nEOF\n", f"{EVIL}\n"),
        ("cat <<A <<B\na\nA\n${{ v }}\nB\n", f"{EVIL}\n"),
        ("cat <<'X'\nit's $x\nX\nprintf %s ${{ v }}", f"it's $x\n{EVIL}"),
        ("cat <<EOF\n$(printf %s ${{ v }})\nEOF\n", f"{EVIL}\n"),
        ('printf %s "$(printf %s "${{ v }}")"', EVIL),
        ('printf %s "$(case x in (x) printf %s ${{ v }};; esac)" "${{ v }}"', EVIL * 2),
        ('printf %s "$(case x in x) printf %s ${{ v }};; esac)" "${{ v }}"', EVIL * 2),
        ('printf %s "${q:-${{ v }}}"', EVIL),
        ("printf %s ${q:-${{ v }}}", EVIL),
        ("(printf %s ${{ v }}) && { printf %s ${{ v }}; }", EVIL * 2),
        ("if [ ${{ v }} = x ]; then echo x; else printf %s ${{ v }}; fi", EVIL),
        ("case ${{ v }} in x) echo 1;; *) printf %s ${{ v }};; esac", EVIL),
        ("f() { printf %s \"$1\"; }; f ${{ v }} # '${{ v }}'", EVIL),
        ("# it's a comment\nprintf %s ${{ v }}", EVIL),
        ("printf %s a#'b' ${{ v }}", f"a#b{EVIL}"),
        ("printf %s \\' ${{ v }} \\\"", f"'{EVIL}\""),
        ("printf %s $(( 1 + (2 * 3) )) ${{ v }}", f"7{EVIL}"),
        ("printf %s `echo '$'` ${{ v }}", f"${EVIL}"),
        ('printf %s ${m.k} "${m.k}"', EVIL * 2),
        ("printf %s '${{'", None),
        ("printf %s '$${{ v }}'", "${{ v }}"),
    ],
)
def test_a_value_is_one_word_wherever_it_stands(
    shell: str, script: str, expected: str | None
) -> None:
    scope = {"v": EVIL, "m": {"k": EVIL}}
    if expected is None:
        with pytest.raises(ExpressionError, match="is not closed"):
            run(shell, script, scope)
    else:
        assert run(shell, script, scope).decode() == expected


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo '${{ v }}'", "inside single quotes would not be expanded; use double quotes"),
        ("awk '{print $1, ${{ v }}}' f", "inside single quotes"),
        ("echo \"$(echo '${{ v }}')\"", "inside single quotes"),
        ("echo $'a\\'${{ v }}'", "inside single quotes"),
        ("echo ${x:-'${{ v }}'}", "inside single quotes"),
        ("cat <<'EOF'\n${{ v }}\nEOF", "whose mark is quoted would not be expanded"),
        ('cat <<"EOF"\n${{ v }}\nEOF', "whose mark is quoted"),
        ("cat <<\\EOF\n${{ v }}\nEOF", "whose mark is quoted"),
        ("cat <<'EOF'\n${{ v }}", "whose mark is quoted"),
        ("echo \\${{ v }}", "after a backslash would not be expanded; write $${{"),
        ('echo "\\${{ v }}"', "after a backslash"),
        ("echo $(( ${{ v }} + 1 ))", "inside shell arithmetic could run code"),
        ('echo "$(( 1 + ${{ v }} ))"', "inside shell arithmetic"),
        ("(( ${{ v }} > 1 )) && echo", "inside shell arithmetic"),
        ("echo `echo ${{ v }}`", "inside backticks"),
        ('echo "`echo "${{ v }}"`"', "inside backticks"),
        ("( " * 100 + "${{ v }}", "nested too deeply"),
        ("$(cat <<A\n" * 60 + "${{ v }}", "nested too deeply"),
    ],
)
def test_where_a_value_cannot_stand_is_said_before_anything_runs(script: str, said: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_args({"cmd": script}, CMD)
    assert said in str(caught.value)


def test_arithmetic_would_run_code_if_it_were_allowed() -> None:
    """Why it is not: bash evaluates what a variable holds."""
    done = subprocess.run(
        ["bash", "-c", "echo $(( $X + 1 ))"],
        env={"PATH": "/usr/bin:/bin", "X": "a[$(echo pwned >&2)]"},
        capture_output=True,
    )
    assert b"pwned" in done.stderr


W, Q, C = Place.WORD, Place.QUOTED, Place.COMMENT


@pytest.mark.parametrize(
    ("script", "places"),
    [
        ('${{a}} "${{a}}" ${{a}}', [W, Q, W]),
        ('"a\\"${{a}}" ${{a}}', [Q, W]),
        ("a#${{a}} #${{a}}\n${{a}}", [W, C, W]),
        ("echo $# ${{a}} ${#x} ${{a}}", [W, W]),
        ('"$(echo "${{a}}" ${{a}})${{a}}"${{a}}', [Q, W, Q, W]),
        ('"${x:-"${{a}}"}${{a}}" ${{a}}', [Q, Q, W]),
        ("echo <<<${{a}} ${{a}}", [W, W]),
        ("cat <<A; echo ${{a}}\n'${{a}}'\nA\n'x' ${{a}}", [W, Q, W]),
        ("cat <<A\n  A\nA\n${{a}}", [W]),
        ("x=$(( 1 << 2 ))\n'b' ${{a}}", [W]),
        ("for case in a b; do echo $(echo case) ${{a}}; done", [W]),
        ('"$(if true; then case a in a) ;; esac; fi)${{a}}"', [Q]),
        ('echo "unclosed ${{a}}', [Q]),
        ("'closed'\"${{a}}\"'closed'${{a}}", [Q, W]),
    ],
)
def test_places(script: str, places: list[Place]) -> None:
    assert places_in(split_template(script, escapes=False)) == places


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(st.sampled_from(
    ["'", '"', "\\", "$(", ")", "`", "$((", "))", "${", "}", "<<A", "\n", "A", "#", " ", "x",
     "<<'A'", "$'", "case", "esac", ";", "${{ v }}"]), max_size=25))  # fmt: skip
def test_any_script_is_scanned_to_its_end(pieces: list[str]) -> None:
    try:
        parts = split_template("".join(pieces), escapes=False)
        places = places_in(parts)
    except ExpressionError:
        return
    assert len(places) == sum(not isinstance(part, str) for part in parts)


@pytest.mark.slow
@settings(max_examples=150)
@given(st.lists(st.sampled_from(
    ["'", '"', "\\", "$(", ")", "`", "$((", "))", "${x:-", "}", "<<A", "\n", "A\n", "#", " ", "x",
     "<<'A'", "$'", ";", "${{ v }}", "${{ v }}"]), max_size=14))  # fmt: skip
def test_a_hostile_value_never_runs_whatever_the_script(pieces: list[str]) -> None:
    """In scripts that nobody would write, the value still stays a value."""
    script = "x=1; : " + "".join(pieces)
    hostile = "a[$(echo PWNED >&2)]'\"; echo PWNED >&2; `echo PWNED >&2` $(echo PWNED >&2)"
    try:
        done = compile_args({"cmd": script}, CMD).render({"v": hostile})
    except ExpressionError:
        return
    for shell in ("/bin/dash", "/bin/bash"):
        finished = subprocess.run(
            [shell, "-c", done.args["cmd"]],
            env={"PATH": "/nowhere", **done.env},
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )
        lines = finished.stderr.splitlines()
        assert b"PWNED" not in lines, done.args["cmd"]
