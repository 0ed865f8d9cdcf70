"""Workflows the tests run, on this machine only."""

from __future__ import annotations

GREET = """\
version: v1
name: greet
labels: {team: web}
vars: {who: world}
inventory:
  hosts: {a: {address: local}, b: {address: local}}
steps:
  - name: hello
    action: cmd.run
    args: {cmd: 'echo "hello ${who} from $TENURE_HOST"'}
  - name: bye
    targets: [a]
    action: cmd.run
    args: {cmd: "echo bye"}
"""

BREAK = """\
version: v1
name: break
inventory:
  hosts: {a: {address: local}, b: {address: local}}
steps:
  - name: fragile
    action: cmd.run
    args: {cmd: 'echo trying; echo "it broke" >&2; test "$TENURE_HOST" = a'}
  - name: never
    action: cmd.run
    args: {cmd: "true"}
"""

WAIT = """\
version: v1
name: wait
steps:
  - name: hold
    action: cmd.run
    args:
      cmd: |
        echo holding
        for n in $(seq 1500); do [ -e "${gate}" ] && break; sleep 0.02; done
        echo released
"""
"""Runs until the file named by the variable ``gate`` exists; half a minute at most, since a killed
``tenure run`` leaves it behind."""

STUBBORN = """\
version: v1
name: stubborn
steps:
  - name: hold
    action: cmd.run
    args: {cmd: "trap '' TERM; echo holding; for n in $(seq 600); do sleep 0.05; done"}
"""
"""Does not end when it is told to."""

NEEDY = """\
version: v1
name: needy
vars: {release: "1.4"}
secrets: [token]
steps:
  - name: a
    action: cmd.run
    when: zone == "one"
    args: {cmd: "echo ${{ token }}"}
  - name: b
    action: cmd.run
    args: {cmd: "echo ${{ relase }}"}
"""

TEMPLATES = """
version: v1
name: conf
inventory: {hosts: {a: {address: local, vars: {zone: north}}, b: {address: local}}}
steps:
  - {name: before, action: BEFORE}
  - {name: render, action: template.render, args: {src: conf.j2, dest: /nowhere/conf}}
  - {name: after, action: cmd.run, args: {cmd: 'echo zone=1 >> $TENURE_OUTPUT'}}
"""
