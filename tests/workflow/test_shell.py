"""Values in shell scripts, through real shells: what goes in comes out and nothing else happens."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.model.errors import ExpressionError
from tenure.workflow.arguments import compile_args
from tenure.workflow.placeholders import split_template
from tenure.workflow.scripts import places_in
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
        ('printf %s "it\'s" ${{ v }}', f"it's{EVIL}"),
        ('x=${{ v }}; printf %s "$x"', EVIL),
        ("cat <<EOF\n<${{ v }}>\nEOF\n", f"<{EVIL}>\n"),
        ('cat <<-EOF\n\t"${{ v }}"\n\tEOF\nprintf %s ${{ v }}', f'"{EVIL}"\n{EVIL}'),
        ("cat <<'X'\nit's $x\nX\nprintf %s ${{ v }}", f"it's $x\n{EVIL}"),
        ("cat <<EOF\n$(printf %s ${{ v }})\nEOF\n", f"{EVIL}\n"),
        ('printf %s "$(printf %s "${{ v }}")"', EVIL),
        ('printf %s "$(case x in (x) printf %s ${{ v }};; esac)" "${{ v }}"', EVIL * 2),
        ('printf %s "${q:-${{ v }}}"', EVIL),
        ("printf %s ${q:-${{ v }}}", EVIL),
        ("(printf %s ${{ v }}) && { printf %s ${{ v }}; }", EVIL * 2),
        ("case ${{ v }} in x) echo 1;; *) printf %s ${{ v }};; esac", EVIL),
        ("f() { printf %s \"$1\"; }; f ${{ v }} # '${{ v }}'", EVIL),
        ("printf %s $(( 1 + (2 * 3) )) ${{ v }}", f"7{EVIL}"),
        ('printf %s ${m.k} "${m.k}"', EVIL * 2),
    ],
)
def test_a_value_is_one_word_wherever_it_stands(shell: str, script: str, expected: str) -> None:
    assert run(shell, script, {"v": EVIL, "m": {"k": EVIL}}).decode() == expected


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo '${{ v }}'", "inside single quotes would not be expanded; use double quotes"),
        ("echo \"$(echo '${{ v }}')\"", "inside single quotes"),
        ("echo $'a\\'${{ v }}'", "inside single quotes"),
        ("echo ${x:-'${{ v }}'}", "inside single quotes"),
        ("cat <<'EOF'\n${{ v }}\nEOF", "whose mark is quoted would not be expanded"),
        ("cat <<\\EOF\n${{ v }}\nEOF", "whose mark is quoted"),
        ("echo \\${{ v }}", "after a backslash would not be expanded; write $${{"),
        ("echo $(( ${{ v }} + 1 ))", "inside shell arithmetic could run code"),
        ("echo `echo ${{ v }}`", "inside backticks"),
        ("echo ${ echo ${{ v }}; }", "inside ${ …; } could run code; use $(…)"),
        ('echo "`echo "${{ v }}"`"', "inside backticks"),
        ("$(cat <<A\n" * 60 + "${{ v }}", "nested too deeply"),
    ],
)
def test_where_a_value_cannot_stand_is_said_before_anything_runs(script: str, said: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_args({"cmd": script}, CMD)
    assert said in str(caught.value)


BARE = "a[$(echo${IFS}PWNED>&2)]"
PRINTED = (
    "in a command inside shell arithmetic could be printed by it, and what it prints is evaluated "
    "and could run code; keep what it prints, and look that it is a number before you count with "
    "it: n=$(…); case $n in '' | *[!0-9]*) exit 1 ;; esac; $((n + 1))"
)
ARITHMETIC = "inside shell arithmetic could run code; do the sum in the expression"
OFFSET = "as an offset in ${name:offset:length} could run code; cut the text in the expression"
INDEX = "as an index of a shell array could run code; take the element in the expression"
EVALUATED = [
    ('echo $(( "${{ v }}" + 1 ))', ARITHMETIC),
    ("echo $(( ${y:-${{ v }}} + 1 ))", ARITHMETIC),
    ("echo $(( $(echo ${{ v }}) + 1 ))", PRINTED),
    ("echo $[ 1 + $(echo ${{ v }}) ]", PRINTED),
    ("echo $(( $(cat <<A\n${{ v }}\nA\n) + 1 ))", PRINTED),
    ("cat <<A\n$(( ${{ v }} ))\nA\n", ARITHMETIC),
    ("echo $[ ${{ v }} + 1 ]", ARITHMETIC),
    ("(( ${{ v }} > 1 ))", ARITHMETIC),
    ("if((${{ v }} > 1)); then :; fi", ARITHMETIC),
    ("for (( i=0; i < ${{ v }}; i++ )); do break; done", ARITHMETIC),
    ("echo ${x:${{ v }}}", OFFSET),
    ("echo ${x: 1 : ${{ v }}}", OFFSET),
    ('echo "${x:"${{ v }}"}"', OFFSET),
    ("a[0]=z; echo ${a[${{ v }}]}", INDEX),
]


@pytest.mark.parametrize(("script", "said"), EVALUATED)
def test_what_bash_evaluates_is_no_place_for_a_value(script: str, said: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_args({"cmd": script}, CMD)
    assert said in str(caught.value)
    assert caught.value.offset is not None
    assert script[caught.value.offset :].startswith("${{ ")


@pytest.mark.parametrize("script", [script for script, _ in EVALUATED])
def test_bash_would_run_the_value_there(script: str) -> None:
    """Why each is refused. The value has no spaces, so that quotes make no difference."""
    script = script.replace("${{ v }}", "$v")
    done = subprocess.run(
        ["bash", "-c", f"x=abc; {script}"],
        env={"PATH": "/usr/bin:/bin", "v": BARE},
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    assert b"PWNED" in done.stderr.splitlines()


@pytest.mark.parametrize("value", [BARE, "($(echo${IFS}PWNED>&2))", "-v"])
@pytest.mark.parametrize(
    "script",
    [
        "[ ${{ v }} -eq 1 ]; test 1 -lt ${{ v }}",
        "[[ $# -eq 0 && ( ${{ v }} =~ ^((x)?y)$ || -n ${{ v }} ) ]]; echo ${{ v }}",
        "echo a[${{ v }}] ${x#[${{ v }}]} ${x:-${{ v }}} ${x:+${{ v }}} ${x/${{ v }}/y}",
        "a[0]=${{ v }}; a=( ${{ v }} x${{ v }} ); declare -a b=( ${{ v }} )",
        'echo "${x:-"$(echo "${{ v }}")"}" ${x[0]-${{ v }}} ${x:=${{ v }}}',
        "f() { local y=${{ v }} z; declare w=${{ v }}; readonly q=${{ v }}; }; f",
        "read -r y <<< ${{ v }}; read -t 1 -p ${{ v }} y z < /dev/null",
        "printf ${{ v }}; printf '%s-%d' ${{ v }} ${{ v }}; printf -v y %s ${{ v }}",
        "echo let > /dev/null; true & echo ${{ v }} >&2; echo ${{ v }} &> /dev/null",
        "case ${{ v }} in a[${{ v }}]) ;; esac; echo $(( 1 + 1 )) ${{ v }} $[ 1 ] ${{ v }}",
        "x=3; (( x > 1 )) && echo ${{ v }}; for (( ; 0; )); do :; done; echo ${{ v }}",
        "mapfile y < ${{ v }}; exit ${{ v }}",
    ],
)
def test_beside_what_is_evaluated_a_value_is_a_value(script: str, value: str) -> None:
    done = compile_args({"cmd": script}, CMD).render({"v": value})
    finished = subprocess.run(
        ["bash", "-c", f"cd /nowhere 2>&-; x=abc; {done.args['cmd']}"],
        env={"PATH": "/usr/bin:/bin", **done.env},
        cwd="/proc/self",
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    assert b"PWNED" not in finished.stderr.splitlines()
    assert b"syntax error" not in finished.stderr.replace(b"syntax error: operand", b"")


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


HOSTILE = [
    "a[$(echo PWNED >&2)]",
    "x[$(echo PWNED >&2)]=1",
    "($(echo PWNED >&2))",
    "a[$(echo PWNED >&2)]'\"; echo PWNED >&2; `echo PWNED >&2` $(echo PWNED >&2)",
]
PIECES = st.sampled_from(
    ["'", '"', "\\", "$(", ")", "`", "$((", "))", "${x:-", "}", "<<A", "\n", "A\n", "#", " ", "x",
     "<<'A'", "$'", ";", '$(("', "${x:", '"${x:', "$[", "]", "((", "if((", "b=(", "<(",
     "case x in ", "x)", "esac", ">", "&&", "${{ evil }}", "${{ evil }}", "${{ other }}"]
)  # fmt: skip
NESTINGS = st.sampled_from(
    ["{}", '"{}"', "$(( {} ))", "$(({}+1))", "${{x:{}}}", "${{x:1:{}}}", "${{x:-{}}}", "${{x/{}/}}",
     "$[ {} ]", "[ {} -eq 1 ]", "[ {} ]", "(({}))", "if(({})); then :; fi", "b=( {} )",
     "${{x[{}]}}", "$(echo {})", "printf {} {} {}", "echo {}", "\n{}\n", "x=1 {}; {}",
     "cat <<A\n{}\nA\n", "( {} )", "case {} in {}) {};; esac"]
)  # fmt: skip


@st.composite
def nested(draw: st.DrawFn, inside: st.SearchStrategy[str]) -> str:
    pattern = draw(NESTINGS)
    return pattern.format(*(draw(inside) for _ in range(pattern.count("{}"))))


SCRIPTS = st.recursive(
    st.sampled_from(["${{ evil }}", '"${{ evil }}"', "${{ other }}", "1"]), nested, max_leaves=6
)


@pytest.mark.slow
@settings(max_examples=300)
@given(
    script=st.lists(PIECES, max_size=14).map("".join) | SCRIPTS,
    evil=st.sampled_from(HOSTILE),
    other=st.sampled_from(HOSTILE),
)
def test_a_hostile_value_never_runs_whatever_the_script(script: str, evil: str, other: str) -> None:
    """In scripts that nobody would write, the value still stays a value."""
    try:
        done = compile_args({"cmd": f"x=1; {script}"}, CMD).render({"evil": evil, "other": other})
    except ExpressionError:
        return
    for shell, called in (("dash", "sh"), ("bash", "bash"), ("bash", "sh")):
        finished = subprocess.run(
            [called, "-c", done.args["cmd"]],
            executable=f"/bin/{shell}",
            cwd="/proc/self",  # where nothing can be written
            env={"PATH": "/nowhere", **done.env},
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )
        lines = finished.stderr.splitlines()
        assert b"PWNED" not in lines, done.args["cmd"]
