package main

import (
	"slices"
	"strings"
)

// docPage describes how the commands of a page run in a test.
type docPage struct {
	world   bool        // the page runs in the simulated internet instead of a namespace with nothing in it
	setup   string      // shell, run first; $W is the directory in which the page runs, $ROOT the repository
	before  []docBefore // each is used once
	replace [][2]string // text of the page, and what stands for it here
	varies  []string    // parts of what the page prints that depend on the host
	skip    []docSkip
}

// docBefore is shell that runs before the first command with the prefix that it was not used for yet.
type docBefore struct{ command, script string }

// docSkip leaves out commands with a prefix, for a reason.
type docSkip struct{ command, reason string }

// skipped returns why a command is not run, or "" if it is.
func (p docPage) skipped(c docCommand) string {
	for _, s := range p.skip {
		if strings.HasPrefix(c.text, s.command) {
			return s.reason
		}
	}
	return ""
}

// unused returns the first prefix in before that no command is left for.
func (p docPage) unused(commands []docCommand) string {
	left := slices.Clone(p.before)
	for _, c := range commands {
		if at := slices.IndexFunc(left, func(b docBefore) bool { return strings.HasPrefix(c.text, b.command) }); at >= 0 {
			left = slices.Delete(left, at, at+1)
		}
	}
	if len(left) == 0 {
		return ""
	}
	return left[0].command
}

// docRun leaves a run, its id in $RUN, and the host's public key in host.pub.
const docRun = `custody run --quiet -- sh -c 'echo hi >f'; custody key show >host.pub 2>/dev/null; RUN=$(custody runs --json --limit 1 | sed 's/.*"run":"\([^"]*\)".*/\1/'); export RUN`

var docPages = map[string]docPage{
	"README.md": {
		setup:  `cp -r "$ROOT/examples" .`,
		before: []docBefore{{"custody verify --key", "custody key show >host.pub"}},
		varies: []string{"warn  qemu-kvm            it took longer than 3s: no guest booted", "warn  isolation           qemu-tcg: software emulation: QEMU gives no security promise for it; for evaluation, development and CI", "qemu-tcg"},
		skip: []docSkip{
			{"make demo", "installs packages; it runs on fresh hosts"},
			{"make test", "runs this test"},
		},
	},
	"client.md": {
		skip: []docSkip{{"custody ", "needs a service on another machine; TestElsewhere does it"}},
	},
	"compliance.md": {
		setup: docRun,
		before: []docBefore{
			{"custody report --framework nist80053", "mv audit audit-soc2"},
			{"(printf", "cp host.pub audit/; cd audit"},
		},
		replace: [][2]string{
			{"r-01m7ys09zc5g1vcj7ytm4fh923", "$RUN"},
			{"2026-11-01", "$(date -u -d '-2 days' +%F)"},
			{"2026-12-01", "$(date -u -d '+2 days' +%F)"},
			{"audit/r-....tar", "audit/$RUN.tar"},
		},
	},
	"egress.md": {
		world: true,
		setup: `cp -r "$ROOT/examples" .; cp examples/egress/custody.yaml .
printf 'version: 1\negress:\n  - allow: "*.github.io"\n' >wide.yaml; printf 'version: 1\n' >less.yaml; custody trust less.yaml`,
		before: []docBefore{{"sudo custody policy set", `live --trust -- sh -c 'curl -sN https://allowed.site.example/ >/dev/null; sleep 60'`}},
		skip:   []docSkip{{"sudo custody world", "the page runs in the simulated internet; the README has the same command"}},
	},
	"keys.md": {
		setup: `mkdir media etc`,
		before: []docBefore{
			{"custody key identity /media/key", "fresh"},
			{"vault secrets", "vault_server; fresh"},
			{"ssh-keygen", "fresh"},
		},
		replace: [][2]string{
			{"ssh-agent -a /run/custody/agent.sock", `eval "$(ssh-agent -a "$W/agent.sock")"`}, {"/media/key", "$W/media"}, {"/run/identity", "$W/identity"}, {"/run/custody/agent.sock", "$W/agent.sock"},
			{"ssh-keygen -t", "ssh-keygen -q -N '' -t"},
			{"custody-HOST", "custody-host"},
		},
		skip: []docSkip{
			{"systemd-creds", "needs systemd and a TPM; home's TestTPM does it with swtpm"},
			{"shred", "follows systemd-creds"},
		},
	},
	"llm.md": {
		setup: `cp -r "$ROOT/examples" .; custody world -- custody run --trust --policy examples/agent/custody.yaml --workdir examples/agent/work`,
	},
	"notify.md": {
		setup:   `printf 'version: 1\nnotify: {hooks: [{name: after, argv: [/bin/true]}]}\n' >"$CUSTODY_HOME/host.yaml"`,
		replace: [][2]string{{"/etc/custody", "$W"}},
	},
	"operations.md": {
		setup:  docRun + `; printf 'version: 1\negress:\n  - allow: api.example.com\n' >custody.yaml`,
		before: []docBefore{{"custody fsck --since", `cp "$CUSTODY_HOME/log/checkpoint" checkpoint`}},
		replace: [][2]string{
			{"custody erase RUN SEQ", "custody erase $RUN $(custody timeline $RUN --json --kind exec | sed -n '1s/.*\"seq\":\\([0-9]*\\).*/\\1/p')"},
			{"[FILE]", "custody.yaml"},
		},
		skip: []docSkip{
			{"make deps", "installs packages"},
			{"make build", "the test has built it"},
			{"make deb", "TestPackage builds it"},
			{"sudo apt install", "hack/hostvm/hosts --only package does it"},
			{"sudo gpasswd", "follows it"},
			{"sudo env CUSTODY_HOME=/var/lib/custody/host", "follows it"},
			{"custody run --project demo", "follows it"},
			{"sudo mmdebstrap", "fetches packages"},
			{"sudo custody template build mine", "needs the userland"},
			{"sudo bin/custody template build", "takes minutes; every VM of the tests starts from the result"},
			{"sudo custody redteam  ", "takes minutes; TestRedTeam does it"},
			{"custody fsck --witness", "witness.md has witnesses"},
			{"install", "writes into /etc"},
			{"systemctl", "needs systemd; hack/hostvm/hosts --only package starts the units"},
		},
	},
	"redteam.md": {
		skip: []docSkip{
			{"sudo custody redteam  ", "takes minutes; TestRedTeam does it"},
			{"sudo custody redteam --json", "takes minutes"},
			{"sudo custody redteam --isolation", "takes minutes; TestGVisorRedteam does it"},
		},
	},
	"redaction.md": {
		skip: []docSkip{
			{"go test ./redact -run TestCorpus -update", "writes into the repository"},
			{"git diff", "follows it"},
			{"go test ./redact -run TestTools", "make fuzz does it"},
		},
	},
	"secrets.md": {
		world: true,
		setup: `printf %s 'version: 1
secrets:
  git: {from: "env:GIT", deliver: {env: GIT_TOKEN}}
steps:
  - {name: fetch, run: "test -n $GIT_TOKEN", secrets: [git]}
' >custody.yaml; export GIT=a-token-of-the-page`,
		before: []docBefore{{"sudo custody pause", "live -- sleep 100"}},
		replace: [][2]string{
			{"[--end-step]", "--end-step"},
		},
	},
	"serve.md": {
		setup: docRun,
		before: []docBefore{
			{"sudo cat", "silent custody serve"},
			{"curl", "TOKEN=$(custody token new --role auditor page | grep -o 'cst_[A-Za-z0-9_-]*' | head -n 1)"},
		},
		replace: [][2]string{
			{"/var/lib/custody", "$CUSTODY_HOME"},
			{"/RUN/", "/$RUN/"},
		},
		skip: []docSkip{
			{`curl -X POST -H "Authorization: Bearer $TOKEN" https://custody.example:8443`, "needs TLS and names below a domain; TestBrowserPorts opens such links"},
			{"curl -H", "needs names below a domain; TestPortsByName makes such requests"},
			{`curl -sS -H "Authorization: Bearer $TOKEN" 'http://127.0.0.1:8333/api/v1/sandboxes/ID/files/archive`, "needs a sandbox; TestSandboxArchives makes such requests"},
		},
	},
	"siem.md": {
		setup:  docRun + `; printf 'version: 1\nexport:\n  - {name: siem, to: "file://%s/feed"}\n' "$W" >"$CUSTODY_HOME/host.yaml"`,
		before: []docBefore{{"custody export --redrive", "end"}},
		replace: [][2]string{
			{"RUN", "$RUN"}, {"URL", "file://$W/one"}, {"NAME", "siem"},
		},
	},
	"tasks.md": {
		world: true,
		setup: `cp -r "$ROOT/examples" .; cp "$ROOT/docs/verify.py" .; cp examples/egress/custody.yaml .; custody run --trust
printf 'version: 1\nexport:\n  - {name: siem, to: "file://%s/feed"}\n' "$W" >"$CUSTODY_HOME/host.yaml"`,
		skip: []docSkip{
			{"sudo custody template build tools", "takes a minute, and fetches packages"},
			{"sudo custody run --template tools", "needs the template"},
			{"sudo custody template build agent", "needs an agent's program"},
			{"sudo custody run --policy agent.yaml", "needs an agent's program and a model's key; the README runs examples/agent"},
		},
		before: []docBefore{{"sudo custody prune --dry-run", `cp host.yaml "$CUSTODY_HOME/host.yaml"`}},
	},
	"verify.md": {
		setup: docRun + `; cp "$ROOT/docs/verify.py" .; witnessed; custody run --quiet -- true; cp "$CUSTODY_HOME/log/checkpoint" checkpoint-of-last-month
custody run --quiet -- true; custody bundle last --since checkpoint-of-last-month -o b.tar; P=f AS=0 MODE=420 SIZE=1 SHA256=0 LINK= SALT=00`,
		before: []docBefore{
			{"python3 verify.py proof.json", `silent custody serve; TOKEN=$(custody token new --role auditor page | grep -o 'cst_[A-Za-z0-9_-]*' | head -n 1)
curl -sS -H "Authorization: Bearer $TOKEN" "http://127.0.0.1:8333/api/v1/runs/$RUN/records/1/proof" >proof.json`},
			{"sed '/^$/,$d' checkpoint", "cp ../host.pub ."},
			{"openssl ts", "stamp checkpoint"},
			{"python3 verify.py b.tar", "cd .."},
		},
	},
	"witness.md": {
		setup: docRun + `; openssl req -x509 -newkey rsa:2048 -nodes -keyout tls.key -out tls.crt -days 2 -subj /CN=witness.example`,
		before: []docBefore{
			{"custody monitor", "end"},
			{"openssl ts", `cp "$CUSTODY_HOME/log/checkpoint" .; stamp checkpoint`},
		},
		replace: [][2]string{
			{"HOST.pub", "host.pub"}, {"monitor LOG", "monitor $CUSTODY_HOME/log"}, {"ADDRESS", "127.0.0.1:7382"}, {"--cert CERT --tls-key KEY", "--cert tls.crt --tls-key tls.key"},
			{"NAME=URL ...", "$(cut -d+ -f1 host.pub)=$CUSTODY_HOME/log"}, {"witness key NAME", "witness key witness.example"},
		},
	},
	"vault.md": {
		setup:   "vault_server",
		replace: [][2]string{{"ROLE_ID=...", "ROLE_ID=$(vault read -field=role_id auth/approle/role/custody/role-id)"}, {"/var/log/vault", "$W"}},
	},
}
