import assert from "node:assert/strict";
import { test } from "node:test";
import { kinds, type RunRecord } from "../types";
import { describe } from "./describe";

const record = (more: Partial<RunRecord>) => ({ v: 1, run: "r-1", seq: 1, time: "2026-11-21T10:00:00Z", observer: "host", ...more }) as RunRecord;

test("what records say", () => {
  const cases: [Partial<RunRecord>, string, string?, string?][] = [
    [{ kind: "exec", exec: { proc: "p", pid: 7, ppid: 1, exe: "/bin/sh", argv: ["sh", "-c", "echo hi"], cwd: "/w", uid: 0 } }, "sh -c 'echo hi'  (pid 7, in /w)"],
    [{ kind: "exit", exit: { proc: "p", pid: 7, code: 0, duration_ns: 2e6 } }, "pid 7 exits with 0 after 2.0 ms"],
    [{ kind: "exit", exit: { proc: "p", pid: 7, code: -1, signal: 9, duration_ns: 0 } }, "pid 7 killed by signal 9", undefined, "warn"],
    [{ kind: "exit", exit: { proc: "p", pid: 7, code: -1, duration_ns: 0, synthetic: true } }, "pid 7: its end was not seen", undefined, "warn"],
    [{ kind: "flow", flow: { state: "deny", proto: "tcp", dst_ip: "2001:db8::1", dst_port: 443, verdict: "deny", count: 3 } }, "deny tcp [2001:db8::1]:443  3 times", "deny", "bad"],
    [{ kind: "dns", dns: { name: "a.example", type: "A", rcode: "REFUSED", verdict: "deny", rule: "default", reason: "no rule" } }, "A a.example REFUSED  no rule", "deny", "bad"],
    [{ kind: "output", output: { stream: "stdout", offset: 0, text: "line\n" } }, "stdout: line"],
    [{ kind: "secret", secret: { op: "mint", name: "git", ttl_ns: 6e10 } }, "mint git  lives 1 min 0 s"],
    [{ kind: "run", lifecycle: { phase: "end", status: "done", exit_code: 1, duration_ns: 5e9 } }, "run ends: done, exit code 1 after 5.00 s", undefined, "warn"],
    [{ kind: "gap", gap: { stage: "driver", count: 0, what: "reads of files", cause: "no guest kernel" } }, "not observed: reads of files  no guest kernel"],
    [{ kind: "gap", gap: { stage: "kernel_ring", count: 1200, cause: "full" } }, "gap: 1,200 events lost at kernel_ring  full", undefined, "warn"],
    [{ kind: "probe", probe: { name: "dns/x", family: "ipv6", blocked: true, recorded: true, detail: "denied" } }, "probe dns/x (ipv6): blocked  denied"],
    [{ kind: "probe", probe: { name: "dns/x", blocked: false, recorded: false } }, "probe dns/x: got through, not recorded  ", undefined, "bad"],
    [{ kind: "probe", probe: { name: "control/https", blocked: false, recorded: true } }, "probe control/https: got through  "],
  ];
  for (const [more, words, verdict, tone] of cases) {
    const d = describe(record(more));
    assert.deepEqual([d.words, d.verdict, d.tone], [words, verdict, tone]);
  }
});

test("a record whose payload is missing or of another shape is still described", () => {
  for (const kind of [...kinds, "unheard of" as never]) {
    assert.ok(describe(record({ kind })).words.length > 0, kind);
    assert.ok(describe({ ...record({ kind }), [kind]: 5, lifecycle: null } as never).words.length > 0, kind);
  }
});

test("a line stays short whatever stands in it", () => {
  const long = "x".repeat(1 << 20);
  const d = describe(record({ kind: "exec", exec: { proc: "p", pid: 1, ppid: 1, exe: "x", argv: Array.from({ length: 5000 }, () => long), cwd: long, uid: 0 } }));
  assert.ok(d.words.length < 64 * 410 + 500);
});
