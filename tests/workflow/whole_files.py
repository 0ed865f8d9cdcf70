"""Whole files, and what one of them means."""

from __future__ import annotations

from tenure.model.status import Recovery
from tenure.workflow import spec

FULL = """
version: v1
name: rolling-deploy
description: text
queue: night
priority: -5
labels: {team: web, build: 1.10}
recovery: resume
timeout: 2h
secrets: [db_password]
inventory:
  hosts:
    web1: {address: "ssh://deploy@10.0.0.1:22", vars: {zone: a}}
    web2: {address: "http://10.0.0.2:7072"}
    here: {address: local}
    bare:
  groups: {web: {hosts: [web1, web2], vars: {tier: 1}}}
  vars: {region: eu}
vars: {release: "1.4"}
defaults: {timeout: 10m, concurrency: 20, on_takeover: ask}
callbacks:
- {url: "https://hooks.example/x", events: [run, step], secret_env: TENURE_HOOK_A, headers: {X: y}}
plan: {mode: manual-approve, strategy: sequential, approval_timeout: 1d}
steps:
  - name: drain
    targets: [web]
    action: cmd.run
    args: {cmd: "lb drain $TENURE_HOST"}
  - name: restart
    needs: [drain]
    targets: [web]
    action: cmd.run
    args: {cmd: "systemctl restart app"}
    when: release != "1.3"
    loop: [a, b]
    retries: {max: 3, delay: 5s, backoff: 2, max_delay: 1m}
    timeout: 30s
    continue_on_error: yes
    must_vars: [A]
    expect_vars: [B]
    notify: [reload]
    concurrency: 10
    rolling: {batch: 25%, max_failures: 1}
    verify: {cmd: "systemctl is-active app", timeout: 5s}
    on_takeover: verify
    become: root
handlers: [{name: reload, action: cmd.run, args: {cmd: "true"}, retries: 2, when: zone == 'a'}]
"""

MEANT = spec.Workflow(
    version="v1",
    name="rolling-deploy",
    description="text",
    queue="night",
    priority=-5,
    labels={"team": "web", "build": "1.10"},
    recovery=Recovery.RESUME,
    timeout=7200.0,
    secrets=("db_password",),
    inventory=spec.Inventory(
        hosts={
            "web1": spec.HostSpec(address="ssh://deploy@10.0.0.1:22", vars={"zone": "a"}),
            "web2": spec.HostSpec(address="http://10.0.0.2:7072"),
            "here": spec.HostSpec(address="local"),
            "bare": spec.HostSpec(),
        },
        groups={"web": spec.GroupSpec(hosts=("web1", "web2"), vars={"tier": 1})},
        vars={"region": "eu"},
    ),
    vars={"release": "1.4"},
    defaults=spec.Defaults(timeout=600.0, concurrency=20, on_takeover=spec.OnTakeover.ASK),
    callbacks=(
        spec.CallbackSpec(
            url="https://hooks.example/x",
            events=("run", "step"),
            secret_env="TENURE_HOOK_A",
            headers={"X": "y"},
        ),
    ),
    plan=spec.PlanSettings(mode=spec.PlanMode.MANUAL_APPROVE, approval_timeout=86400.0),
    steps=(
        spec.Step(
            name="drain", targets=("web",), action="cmd.run", args={"cmd": "lb drain $TENURE_HOST"}
        ),
        spec.Step(
            name="restart",
            needs=("drain",),
            targets=("web",),
            action="cmd.run",
            args={"cmd": "systemctl restart app"},
            when='release != "1.3"',
            loop=("a", "b"),
            retries=spec.Retries(max=3, delay=5.0, backoff=2.0, max_delay=60.0),
            timeout=30.0,
            continue_on_error=True,
            must_vars=("A",),
            expect_vars=("B",),
            notify=("reload",),
            concurrency=10,
            rolling=spec.Rolling(batch="25%", max_failures=1),
            verify=spec.Verify(cmd="systemctl is-active app", timeout=5.0),
            on_takeover=spec.OnTakeover.VERIFY,
            become="root",
        ),
    ),
    handlers=(
        spec.Handler(
            name="reload",
            action="cmd.run",
            args={"cmd": "true"},
            retries=spec.Retries(max=2),
            when="zone == 'a'",
        ),
    ),
)

OLDER = [
    """
version: v0.1
name: pg-restore
description: restore a backup
env_packages: [postgres]
validation_env: staging
inventory:
  groups:
    db: {hosts: [db1]}
  hosts:
    db1: {address: "http://10.0.0.5:7072", vars: {port: 5432}}
  vars: {user: postgres}
vars:
  backup_path: /var/backups/pg
plan: {mode: manual-approve, strategy: sequential}
steps:
  - name: check backup
    targets: [db]
    action: cmd.run
    args:
      cmd: |
        ts=$(date +%s)
        test -f ${backup_path}/latest.dump && echo "BOPS_EXPORT:BACKUP_OK=true ${ts}"
      export_vars: "yes"
      env: {PGPORT: 5432}
    expect_vars: [BACKUP_OK]
    timeout: 1h30m
  - name: restore
    targets: [db]
    action: shell.run
    args: {script: "pg_restore ${backup_path}/latest.dump", dir: /tmp}
    must_vars: [BACKUP_OK]
    when: ${BACKUP_OK} == true && port >= 5000
    retries: 2
    continue_on_error: false
    notify: [reload]
handlers:
  - name: reload
    action: cmd.run
    args: {cmd: systemctl reload postgresql}
    timeout: 300ms
tests:
  - {name: smoke, action: cmd.run, args: {cmd: psql -c 'select 1'}}
""",
    """
version: 0.1
name: everywhere
inventory: {groups: {all: {hosts: [localhost, 10.0.0.9]}}}
plan: {mode: '', strategy: ''}
steps:
  - {name: set, action: env.set, args: {env: {MODE: fast, N: 3}}}
  - name: each
    action: cmd.run
    args: {cmd: 'echo $item', max_output_bytes: 100}
    loop: [a, {b: c}, 3]
    when: yes
  - name: file
    action: template.render
    args: {src: a.tmpl, dest: /tmp/a, mode: 0644, vars: {x: 1}}
""",
]
"""Of the older runner."""
