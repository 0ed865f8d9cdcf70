"""Every kind of mistake: where it is, what was expected, what was probably meant. All of them come
together, each once, in order, and there is an end to them."""

from __future__ import annotations

import pickle

import pytest

from tenure.model.errors import InvalidWorkflow, Mistake, TenureError
from tests.workflow.samples import HEAD, ONE_STEP, found, in_step, mistakes, parse


def test_all_mistakes_come_together_and_in_order() -> None:
    text = (
        "version: v1\nname: demo\nprority: 5\nsteps:\n"
        "- name: one\n  action: cmd.rn\n  timeout: 30\n  targets: [wbe]\n"
        "- 5\n"
        "- name: two\n  action: cmd.run\n  needs: [oen]\n  when: a ==\n"
        "  args:\n    cmd: |\n      echo\n      echo '${{ x }}'\n"
        "inventory: {hosts: {web: , web: }}\n"
    )
    assert mistakes(text) == [
        "3:1: prority: unknown key 'prority'; did you mean 'priority'?",
        "6:11: steps[0].action: no action named 'cmd.rn'; did you mean 'cmd.run'?",
        "7:12: steps[0].timeout: a duration needs a unit: 30; write 30s",
        "8:13: steps[0].targets[0]: no host or group named 'wbe'; did you mean 'web'?",
        "9:3: steps[1]: must be a map, not 5",
        "12:11: steps[2].needs[0]: no step named 'oen'; did you mean 'one'?",
        "13:9: steps[2].when: the expression ends too early",
        "17:13: steps[2].args.cmd: '${{ x }}': a value inside single quotes would not be expanded; "
        "use double quotes, or pass it by name: the variables are in the environment",
        "18:28: inventory.hosts.web: 'web' is given twice; the first is on line 18",
    ]


@pytest.mark.slow
def test_hosts_and_steps_are_counted() -> None:
    steps = "".join(f"- {{name: s{n}, action: cmd.run, args: {{cmd: x}}}}\n" for n in range(2001))
    assert mistakes(HEAD + "steps:\n" + steps) == ["4:1: steps: has 2001 entries, more than 2000"]
    hosts = ", ".join(f"h{n}: " for n in range(20_001))
    assert mistakes(ONE_STEP + f"inventory: {{hosts: {{{hosts}}}}}") == [
        "7:20: inventory.hosts: has 20001 entries, more than 20000"
    ]


@pytest.mark.slow
def test_hosts_over_all_steps_are_counted() -> None:
    steps = "".join(f"- {{name: s{n}, action: cmd.run, args: {{cmd: x}}}}\n" for n in range(101))
    hosts = ",".join(f"h{n}" for n in range(10_000))
    text = HEAD + f"inventory: {{groups: {{all: {{hosts: [{hosts}]}}}}}}\nsteps:\n" + steps
    assert mistakes(text) == ["5:1: steps: more than 1000000 hosts over all steps"]


@pytest.mark.slow
def test_mistakes_without_end_are_cut() -> None:
    assert len(found(ONE_STEP + "".join(f"k{n}: 1\n" for n in range(5000)))) == 100
    targets = ", ".join(f"x{n}" for n in range(5000))
    assert len(found(in_step(f"targets: [{targets}]"))) == 100


# -- the error ------------------------------------------------------------------------------------


def test_a_mistake_is_shown_with_its_place() -> None:
    mistake = Mistake(
        source="deploy.yaml",
        line=12,
        column=5,
        path="steps[1].timeout",
        message="a duration needs a unit: 30",
        hint="write 30s",
    )
    assert str(mistake) == (
        "deploy.yaml:12:5: steps[1].timeout: a duration needs a unit: 30; write 30s"
    )
    assert str(Mistake(path="name", message="must not be empty")) == (
        "workflow: name: must not be empty"
    )
    assert str(Mistake(source="a.yaml", line=1, column=1, message="is empty")) == (
        "a.yaml:1:1: is empty"
    )


def test_the_error_holds_and_shows_them_all() -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        parse(HEAD + "steps: [{name: a}, {name: b}]", "x.yaml")
    error = caught.value
    assert isinstance(error, TenureError)
    assert isinstance(error, ValueError)
    assert len(error.mistakes) == 2
    assert str(error).splitlines() == [str(mistake) for mistake in error.mistakes]
    assert pickle.loads(pickle.dumps(error)).mistakes == error.mistakes


TWO = "steps:\n- {name: a, action: cmd.run, args: {cmd: x}}\n"


def in_args(text: str, action: str = "cmd.run") -> str:
    """Line 6 of a workflow, the value at column 9."""
    return HEAD + f"steps:\n- name: one\n  action: {action}\n  args: {text}\n"


TOP = [
    ("hosts: {web1: {}}", "7:1: hosts: unknown key 'hosts'; it is called 'inventory.hosts' here"),
    ("prority: 5", "7:1: prority: unknown key 'prority'; did you mean 'priority'?"),
    ("priority: 101", "7:11: priority: must be between -100 and 100, not 101"),
    ("priority: high", "7:11: priority: must be a whole number, not 'high'"),
    (
        "recovery: resum",
        "7:11: recovery: must be one of interrupt, resume, not 'resum'; did you mean 'resume'?",
    ),
    ("timeout: 30", "7:10: timeout: a duration needs a unit: 30; write 30s"),
    ("timeout: '30'", "7:10: timeout: '30' has no unit; write 30s"),
    ("timeout: 0s", "7:10: timeout: must be more than zero; leave it out for none"),
    ("vars: 5", "7:7: vars: must be a map, not 5"),
    (
        "vars: {a: .nan}",
        "7:11: vars.a: .nan is not a finite number; write it in quotes if it is meant as text",
    ),
    ("vars: {'': 1}", "7:8: vars['']: must not be empty"),
    (
        "secrets: [p]\nvars: {p: 1}",
        "8:8: vars.p: 'p' is a secret and must not be in the file; "
        "give it with --secret, the environment or a file",
    ),
    (
        "defaults: {concurrency: 0}",
        "7:25: defaults.concurrency: must be between 1 and 100000, not 0",
    ),
    ("callbacks: [{events: [run]}]", "7:13: callbacks[0].url: 'url' is missing"),
    (
        "callbacks: [{url: 'ftp://x'}]",
        "7:19: callbacks[0].url: must begin with http:// or https://",
    ),
    (
        "callbacks: [{url: 'http://x', events: [rum]}]",
        "7:40: callbacks[0].events[0]: must be one of run, step, host, not 'rum'; "
        "did you mean 'run'?",
    ),
    (
        "callbacks: [{url: 'http://x', secret_env: HOOK}]",
        "7:43: callbacks[0].secret_env: must be TENURE_HOOK_ and then A-Z, 0-9 or _; name it "
        "TENURE_HOOK_HOOK",
    ),
    (
        'callbacks: [{url: "http://x", headers: {A: "b\\nc"}}]',
        "7:44: callbacks[0].headers.A: has a value that is not printable ASCII on one line",
    ),
    (
        "inventory: {hosts: {web1: {address: 'ftp://x'}}}",
        "7:37: inventory.hosts.web1.address: 'ftp://x' is no address; "
        "write local, ssh://user@host:port or http://host:port",
    ),
    ("inventory: {hosts: {'': {address: x}}}", "7:21: inventory.hosts['']: must not be empty"),
    (
        'inventory: {hosts: {"a\\nb": {}}}',
        "7:21: inventory.hosts['a\\nb']: must be one line without control characters",
    ),
    (
        "inventory: {groups: {g: {hosts: [h]}, all: {hosts: [g]}}}",
        "7:53: inventory.groups.all.hosts[0]: 'g' is a group; a group lists hosts",
    ),
    ("handlers: [{name: a, action: cmd.run}]", "7:12: handlers[0].args: cmd.run needs 'cmd'"),
    (
        "handlers: [{name: a, action: env.set, args: {env: {}}, loop: [1]}]",
        "7:56: handlers[0].loop: unknown key 'loop'; "
        "it runs after each item of the step that notifies it",
    ),
    (
        "handlers: [{name: a, action: env.set, args: {env: {}}, notify: [b]}]",
        "7:56: handlers[0].notify: unknown key 'notify'; there is name, action, args, when, "
        "retries, timeout, become",
    ),
]

STEP = [
    ("with: {cmd: x}", "7:3: steps[0].with: unknown key 'with'; it is called 'args' here"),
    (
        "depends_on: [x]",
        "7:3: steps[0].depends_on: unknown key 'depends_on'; it is called 'needs' here",
    ),
    (
        "export_vars: true",
        "7:3: steps[0].export_vars: unknown key 'export_vars'; "
        "it is an argument of cmd.run: put it under 'args'",
    ),
    ("targets: web", "7:12: steps[0].targets: must be a list, not 'web'; write [web]"),
    (
        "targets: [loca]",
        "7:13: steps[0].targets[0]: no host or group named 'loca'; did you mean 'local'?",
    ),
    ("needs: [two]", "7:11: steps[0].needs[0]: no step named 'two'; there is one"),
    ("needs: [one]", "7:11: steps[0].needs[0]: a step cannot need itself"),
    (
        "notify: [reload]",
        "7:12: steps[0].notify[0]: no handler named 'reload'; there are no handlers",
    ),
    ("when: a ==", "7:9: steps[0].when: the expression ends too early"),
    ("when: 9**9**9 > 3", "7:9: steps[0].when: the result of ** is too large"),
    (
        "when: port == 'a' * 3",
        "7:9: steps[0].when: * needs numbers, not text and a number; "
        "make a number of text with |int or |float",
    ),
    ("when: -(1 // 0) + port > 0", "7:9: steps[0].when: integer division or modulo by zero"),
    ("when: a|lowr", "7:9: steps[0].when: no filter named 'lowr'; did you mean 'lower'?"),
    ("when: a is definde", "7:9: steps[0].when: no test named 'definde'; did you mean 'defined'?"),
    ("when: a b", "7:9: steps[0].when: 'b' was not expected here; quote it if it is meant as text"),
    (
        "loop: 'x ${{ a }}'",
        "7:9: steps[0].loop: must be a list or one ${{ expression }} that gives one",
    ),
    ("loop: ${{ a( }}", "7:9: steps[0].loop: the expression ends too early in '${{ a( }}'"),
    ("retries: -1", "7:12: steps[0].retries: must be between 0 and 1000, not -1"),
    ("retries: {delay: 5}", "7:20: steps[0].retries.delay: a duration needs a unit: 5; write 5s"),
    (
        "retries: {dely: 5s}",
        "7:13: steps[0].retries.dely: unknown key 'dely'; did you mean 'delay'?",
    ),
    (
        "continue_on_error: maybe",
        "7:22: steps[0].continue_on_error: must be true or false, not 'maybe'",
    ),
    ("expect_vars: [{a: b}]", "7:17: steps[0].expect_vars[0]: must be text, not a map"),
    ("rolling: {batch: 0}", "7:20: steps[0].rolling.batch: must be at least 1, not 0"),
    (
        "rolling: {batch: 200%}",
        "7:20: steps[0].rolling.batch: must be a number of hosts or a share like 25%, not '200%'",
    ),
    ("verify: {timeout: 5s}", "7:11: steps[0].verify.cmd: 'cmd' is missing"),
    (
        "verify: {cmd: \"echo '${{ a }}'\"}",
        "7:24: steps[0].verify.cmd: '${{ a }}': a value inside "
        "single quotes would not be expanded; use double quotes, or pass it by name: the variables "
        "are in the environment",
    ),
    (
        "on_takeover: verify",
        "7:16: steps[0].on_takeover: verify needs a probe; add verify: {cmd: …}",
    ),
    ("become: -u", "7:11: steps[0].become: '-u' is no name of a user"),
    (
        "become: true",
        "7:11: steps[0].become: 'true' is no name of a user; name the user, as in become: root, "
        "or leave it out",
    ),
]

ARGUMENTS = [
    ("{}", "cmd.run", "6:3: steps[0].args: cmd.run needs 'cmd'"),
    ("{cmd: x, cdm: y}", "cmd.run",
     "6:18: steps[0].args.cdm: cmd.run takes no argument 'cdm'; did you mean 'cmd'?"),
    ("{cmd: x, cwd: /tmp}", "cmd.run",
     "6:18: steps[0].args.cwd: cmd.run takes no argument 'cwd'; it is called 'dir' here"),
    ("{cmd: [ls]}", "cmd.run", "6:15: steps[0].args.cmd: must be text, not a list"),
    ("{cmd: x, export_vars: maybe}", "cmd.run",
     "6:31: steps[0].args.export_vars: must be true or false, not 'maybe'"),
    ("{cmd: x, max_output_bytes: 1.5}", "cmd.run",
     "6:36: steps[0].args.max_output_bytes: must be a whole number, not 1.5"),
    ("{cmd: x, env: {A=B: c}}", "cmd.run",
     "6:24: steps[0].args.env['A=B']: 'A=B' is no name for the environment"),
    ("{}", "script.python", "6:3: steps[0].args: script.python needs exactly one of script, "
     "script_ref, not none of them"),
    ("{script: a, script_ref: b}", "script.python",
     "6:33: steps[0].args.script_ref: script.python needs exactly one of script, script_ref, "
     "not script and script_ref"),
    ("{url: x, method: PSOT}", "http.request",
     "6:26: steps[0].args.method: must be one of GET, POST, not 'PSOT'; did you mean 'POST'?"),
    ("{url: 'http://${{ host'}", "http.request",
     "6:23: steps[0].args.url: '${{' is not closed by '}}'; write $${{ if it is meant as text"),
    ("{url: x, headers: {A: ['${{ a( }}']}}", "http.request",
     "6:33: steps[0].args.headers.A[0]: the expression ends too early in '${{ a( }}'"),
    ("{cmd: 'echo $(( ${{ n }} + 1 ))'}", "cmd.run",
     "6:25: steps[0].args.cmd: '${{ n }}': a value inside shell arithmetic could run code; "
     "do the sum in the expression: ${{ count + 1 }}"),
    ("{script: \"print('${{ n }}')\"}", "script.python",
     "6:26: steps[0].args.script: '${{ n }}' stands inside a Python string or name; "
     "put it where an expression may stand, outside of quotes"),
    ("{cmd: 'echo ${{ n | quote }}'}", "cmd.run",
     "6:21: steps[0].args.cmd: '${{ n | quote }}': a value in a script is whole by itself; quotes "
     "would become part of it; leave out the filter 'quote'"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "said"), TOP, ids=[line for line, _ in TOP])
def test_a_mistake_at_the_top(line: str, said: str) -> None:
    assert mistakes(ONE_STEP + line) == [said]


@pytest.mark.parametrize(("line", "said"), STEP, ids=[line for line, _ in STEP])
def test_a_mistake_in_a_step(line: str, said: str) -> None:
    assert mistakes(in_step(line)) == [said]


@pytest.mark.parametrize(
    ("args", "action", "said"), ARGUMENTS, ids=[f"{action} {args}" for args, action, _ in ARGUMENTS]
)
def test_a_mistake_in_arguments(args: str, action: str, said: str) -> None:
    assert mistakes(in_args(args, action)) == [said]


WHOLE = [
    ("- a", ["1:1: must be a map, not a list"]),
    ("{}", ["1:1: version: 'version' is missing; write version: v1",
            "1:1: name: 'name' is missing", "1:1: steps: 'steps' is missing"]),
    (HEAD + "steps:\n- {name: a, run: make}\n",
     ["4:3: steps[0].action: 'action' is missing",
      "4:13: steps[0].run: unknown key 'run'; write action: shell.run and args: {script: …}"]),
    ("version: v2\nname: a\n" + TWO,
     ["1:10: version: must be one of v1, v0.1, 1, 0.1, not 'v2'"]),
    ("version: v1\nname:\n" + TWO, ["2:6: name: must be text, not null"]),
    (HEAD + "steps: []", ["3:8: steps: must not be empty"]),
    (HEAD + "steps: [{action: cmd.run, args: {cmd: x}}]",
     ["3:9: steps[0].name: 'name' is missing"]),
    (HEAD + "steps: [{name: a, action: cmd.rn}]",
     ["3:27: steps[0].action: no action named 'cmd.rn'; did you mean 'cmd.run'?"]),
    (HEAD + TWO + "- {name: a, action: cmd.run, args: {cmd: x}}\n",
     ["5:10: steps[1].name: 'a' is taken; steps[0] has it"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), WHOLE, ids=[text[:60] for text, _ in WHOLE])
def test_a_mistake_of_the_whole(text: str, said: list[str]) -> None:
    assert mistakes(text) == said


def test_a_cycle_is_printed_whole() -> None:
    text = (
        HEAD
        + "steps:\n"
        + "".join(
            f"- {{name: {name}, needs: [{needs}], action: cmd.run, args: {{cmd: x}}}}\n"
            for name, needs in [("free", ""), ("a", "c"), ("b", "a"), ("c", "b, free")]
        )
    )
    [said] = mistakes(text)
    assert said.startswith(
        "5:3: steps[1]: these steps wait for one another: a needs c needs b needs a;"
    )


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("echo '${{ x }}'", "7:18"),
        ("\"echo '${{ x }}'\"", "7:19"),
        ("|\n        echo\n          echo '${{ x }}'", "9:17"),
        (">\n        echo\n        '${{ x }}'", "7:12"),
        ("\"echo\n        '${{ x }}'\"", "7:12"),
        ("\"\\techo '${{ x }}'\"", "7:12"),
    ],
)
def test_a_place_inside_a_text_is_exact_where_it_can_be(text: str, place: str) -> None:
    whole = f"{HEAD}steps:\n  - name: one\n    action: cmd.run\n    args:\n      cmd: {text}\n"
    [said] = mistakes(whole)
    assert said.startswith(f"{place}: steps[0].args.cmd: ")


@pytest.mark.parametrize(
    "address", ["''", "ssh:///x", "-oProxyCommand=x", "ssh://-o@x", "ssh://x@-oProxyCommand=x"]
)
def test_what_is_no_address(address: str) -> None:
    [said] = mistakes(ONE_STEP + f"inventory: {{hosts: {{web1: {{address: {address}}}}}}}")
    assert "is no address; write local, ssh://user@host:port or http://host:port" in said


def test_nobody_becomes_another_user_where_no_process_is_started() -> None:
    assert mistakes(in_args("{env: {a: b}}\n  become: root", "env.set")) == [
        "7:3: steps[0].become: env.set starts no process that could run as another user; "
        "leave it out"
    ]


def test_a_name_must_not_look_like_an_option() -> None:
    text = "inventory: {hosts: {-oX: }, groups: {g: {hosts: [-oY]}}}"
    assert mistakes(ONE_STEP + text) == [
        "7:21: inventory.hosts.-oX: must not begin with '-'",
        "7:50: inventory.groups.g.hosts[0]: must not begin with '-'",
    ]


def test_each_value_that_stands_in_the_wrong_place_of_a_script_is_told() -> None:
    told = mistakes(in_args("{cmd: 'echo $(( ${{ 1 }} )) `echo ${{ 2 }}` ${{ 3 }}'}"))
    assert len(told) == 2
    assert "'${{ 1 }}': a value inside shell arithmetic could run code" in told[0]
    assert "'${{ 2 }}': a value inside backticks cannot be quoted safely" in told[1]


ACTION = "action: env.set, args: {env: {}}"
NOT_OF_A_HANDLER = {
    "targets": "it runs on the hosts that notified it",
    "needs": "it runs after the step that notifies it",
    "with_items": "it runs after each item of the step that notifies it",
    "continue_on_error": "if it fails, the step that notified it does: say it there",
    "register": "what a handler exports is not passed on to other steps",
}


@pytest.mark.parametrize(("key", "said"), NOT_OF_A_HANDLER.items(), ids=NOT_OF_A_HANDLER)
def test_handler_is_told_what_happens_instead(key: str, said: str) -> None:
    (only,) = mistakes(f"{ONE_STEP}handlers: [{{name: a, {ACTION}, {key}: 1}}]\n")
    assert only.endswith(f"handlers[0].{key}: unknown key {key!r}; {said}")
