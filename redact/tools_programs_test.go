package redact

import (
	"fmt"
	"strings"
)

func tools() []tool {
	shell := []string{"bash", "-c"}
	return []tool{
		{name: "filters", argv: shell, env: "LC_ALL=C.UTF-8", script: filterScript, filter: true, programs: filters()},
		{name: "bash", argv: shell, env: "LC_ALL=C.UTF-8", script: shellScript, programs: bashes()},
		{name: "bash in C", argv: shell, env: "LC_ALL=C", script: shellScript, programs: bashes()},
		{name: "dash", argv: []string{"dash", "-c"}, env: "LC_ALL=C.UTF-8", script: dashScript, programs: dashes()},
		{name: "files", argv: shell, env: "LC_ALL=C.UTF-8", script: fileScript, sole: true, programs: files()},
		{name: "files in C", argv: shell, env: "LC_ALL=C", script: fileScript, sole: true, programs: files()},
		{name: "git", argv: shell, env: "LC_ALL=C.UTF-8", script: gitScript, sole: true, few: true, programs: gits()},
		{name: "python", argv: []string{"/usr/bin/python3", "-c"}, env: "PYTHONUTF8=1", script: pythonScript, programs: pythons()},
		{name: "perl", argv: []string{"perl", "-e"}, env: "PERL5OPT=", script: perlScript, programs: perls()},
		{name: "node", argv: []string{"node", "-e"}, env: "NODE_OPTIONS=", script: nodeScript, programs: nodes()},
		{name: "go", inGo: true, programs: gos()},
	}
}

// filters are programs that read a text with the values, and print it in another encoding.
func filters() []program {
	plain := []string{
		"od", "od -b", "od -c", "od -x", "od -tx1", "od -tx1z", "od -tx2", "od -An -tx1", "od -v -An -tx1 -w8", "od -tx1 -Ax", "od -to1", "od -tx4", "xxd -b", "od -tx1z -w32",
		"xxd", "xxd -p", "xxd -p -u", "xxd -u", "xxd -g1", "xxd -g4", "xxd -c 7 -g1", "xxd -c 32", "xxd -i",
		"hexdump", "hexdump -C", "hexdump -x", "hexdump -b", "LC_ALL=C hexdump -c", "hexdump -v -C", `hexdump -v -e '16/1 "%02x " "\n"'`, `hexdump -v -e '1/1 "%02x"'`, `hexdump -v -e '8/1 "0x%02x, " "\n"'`,
		"base64", "base64 -w 0", "base64 -w 20", "base32", "base32 -w 0", "basenc --base64url", "basenc --base32hex", "basenc --base16", "basenc --base2msbf",
		"openssl base64", "openssl base64 -A", "cat", "fold -b -w 40",
		"base64 -w 0 | base64", "xxd -p | tr -d '\\n' | base64", "base64 -w 0 | xxd -p", "base32 -w 0 | base64",
	}
	lines := []string{
		"sed 's/^/> /'", "sed 's/^/    /'", "sed 's/^/# /'", "sed 's/^/\t\t/'", "git diff --no-index --text /dev/null - | grep -av ^index | sed 's/^/    /'", `awk '{printf "%s\r\n", $0}'`, "git diff --no-index --text /dev/null - | grep -av ^index", "diff -a /dev/null -", "diff -au --label a --label b /dev/null -",
	}
	numbered := []string{
		"cat -n", "nl -ba", "grep -an ''", "grep -aHn ''", "sed 's/^/web-1  | /'", `awk '{print "2026-01-02T03:04:05.678Z INFO [app] " $0}'`, `awk '{print NR": "$0}'`,
	}
	text := []string{"jq -Rs .", "jq -Rs -a .", "jq -Rs '{a: [.]}'", "jq -Rsr @sh", "jq -Rsr @uri", "jq -Rsr @html", "jq -Rsr @base64", "jq -Rsr @json", "git diff --no-index --text /dev/null - | grep -v ^index | jq -Rs ."}
	var list []program
	for _, name := range plain {
		list = append(list, program{name: name})
	}
	for _, name := range lines {
		list = append(list, program{name: name, line: true})
	}
	for _, name := range numbered { // before the second line of a value that begins with "{", less may precede
		list = append(list, program{name: name, line: true, not: "json"})
	}
	for _, name := range text { // jq breaks characters in long text
		list = append(list, program{name: name, text: true, word: true, not: "5000"})
	}
	list = append(list, program{name: "od -An -tu1", wraps: " "}, program{name: "od -td1", wraps: " "}, program{name: "od -tu1", wraps: " "}, program{name: "od -a", not: "latin cjk emoji mixed binary 5000"})
	for _, name := range []string{"sed -n 'l 0'", "LC_ALL=C sed -n 'l 0'"} {
		list = append(list, program{name: name, line: true, not: "pem lines json"})
	}
	sql := func(what, mode string) program {
		return program{name: "sqlite3 " + mode + what, code: fmt.Sprintf(`sqlite3 %s :memory: "select %s from (select cast(readfile('$f') as text) as v)"`, mode, what), text: true, word: true}
	}
	return append(list, sql("quote(v)", ""), sql("hex(v)", ""), sql("v", "-csv "), sql("v", "-json "), sql("v", "-quote "), sql("v", "-html "))
}

// bashes are ways in which bash prints a variable's value.
func bashes() []program {
	list := []program{
		{name: "printf %q", code: `printf %q "$v"`}, {name: "${v@Q}", code: `printf %s "${v@Q}"`}, {name: "${v@A}", code: `printf %s "${v@A}"`},
		{name: "set -x", code: `(set -x; : "$v") 2>&1`}, {name: "set -x, --opt=v", code: `(set -x; : --token="$v" x) 2>&1`}, {name: "set -x, words", code: `(set -x; : "x $v") 2>&1`}, {name: "declare -p", code: "declare -p v"}, {name: "alias -p", code: `(alias a="$v"; alias -p)`},
		{name: "trap -p", code: `(trap -- "$v" USR1; trap -p)`}, {name: "here document", code: "cat <<END\n$v\nEND\n"}, {name: "export -p", code: `(export v; export -p | sed -n '/declare -x v=/,$p')`},
		{name: "set", code: `(set | sed -n '/^v=/,$p')`}, {name: "printf %b", code: `printf %b "${v//\\/\\\\}"`}, {name: "array", code: `(a=("$v"); declare -p a)`},
		{name: "cd error", code: `cd -- "$v" 2>&1`, short: 200}, {name: "ls error", code: `ls -- "$v" 2>&1`, short: 200},
		{name: "declare -f", code: `(eval "f() { echo ${v@Q}; }"; declare -f f)`}, {name: "xargs -t", code: `printf '%s\0' "$v" | xargs -0 -t true 2>&1`}, {name: "env", code: `env -i TOKEN="$v" env`},
	}
	for i := range list {
		list[i].word = true
	}
	return list
}

func dashes() []program {
	list := []program{
		{name: "set -x", code: `(set -x; : "$v") 2>&1`}, {name: "set", code: `(set | sed -n '/^v=/,$p')`}, {name: "export -p", code: `(export v; export -p | sed -n '/^export v=/,$p')`},
		{name: "alias", code: `(alias a="$v"; alias)`}, {name: "here document", code: "cat <<END\n$v\nEND\n"},
	}
	for i := range list {
		list[i].word = true
	}
	return list
}

// files are programs that print names of files.
func files() []program {
	var list []program
	for _, name := range []string{
		"ls -d", "ls -dN", "ls -db", "ls -dQ", "ls -d --quoting-style=c", "ls -d --quoting-style=escape", "ls -d --quoting-style=shell", "ls -d --quoting-style=shell-always", "ls -d --quoting-style=shell-escape",
		"ls -d --quoting-style=shell-escape-always", "ls -d --quoting-style=locale", "stat -c %N", "stat -c %n", "sha256sum", "wc -c",
	} {
		list = append(list, program{name: name, code: name + ` -- "$v"`, file: true})
	}
	list = append(list, program{name: "tar -cv", code: `tar -cvf /dev/null -- "$v"`, file: true, not: "special quoted"}) // it may not find those
	for _, name := range []string{
		`rm "./$v/x" 2>&1`, "find -name .git -prune -o -print", "git status", "git status --short", "git status --short -z", "git ls-files -o", "git -c core.quotePath=false ls-files -o",
	} {
		list = append(list, program{name: name, file: true})
	}
	return list
}

// gits are ways in which git and curl print a value.
func gits() []program {
	list := []program{
		{name: "git config", code: `git config -f c a.b "$v"; cat c`}, {name: "git config -l", code: "git config -f c -l"}, {name: "git config -l -z", code: "git config -f c -l -z"},
		{name: "git diff --cached", code: "git diff --cached --text | grep -av ^index", line: true}, {name: "git log", code: "git log | sed 1,/^Date/d", line: true}, {name: "git log --oneline", code: "git log --format=%s", line: true, not: "pem lines json"},
		{name: "git show", code: "git show --text | grep -av '^index\\|^Date\\|^commit'", line: true}, {name: "git grep", code: "git grep -an ''", line: true, not: "json"}, {name: "git blame", code: "git blame -s f | cut -d' ' -f2-", line: true, not: "json"},
		{name: "curl -H", code: `curl -sv -H "X-Token: $v" $URL 2>&1 | grep -a '^>'`, line: true, not: "pem lines json 5000"}, {name: "curl -u", code: `curl -sv -u "user:$v" $URL 2>&1 | grep -a '^>'`, not: "5000"},
		{name: "curl -G", code: `curl -sv -G --data-urlencode "k=$v" $URL 2>&1 | grep -a '^>'`, not: "5000"},
	}
	for i := range list {
		list[i].word = true
	}
	return list
}

// at prints the mark before the output of program p.
func at(p int) string { return fmt.Sprintf(`printf '%%s%%d %%d\n' "MARK" "$n" %d`, p) }

func filterScript(programs []program) string {
	var s strings.Builder
	s.WriteString("n=0\nwhile read -r f; do\n")
	for p, program := range programs {
		fmt.Fprintf(&s, "%s; { %s; } <\"$f\" 2>&1\n", at(p), program.source())
	}
	return s.String() + "n=$((n+1))\ndone\n"
}

func shellScript(programs []program) string {
	var s strings.Builder
	s.WriteString("n=0\nwhile read -r f; do v=\nIFS= read -r -d '' v <\"$f\"\n")
	for p, program := range programs {
		fmt.Fprintf(&s, "%s\n%s\n", at(p), program.source())
	}
	return s.String() + "n=$((n+1))\ndone\n"
}

// dashScript keeps the line breaks at a value's end, which the command substitution would remove.
func dashScript(programs []program) string {
	s := shellScript(programs)
	return strings.Replace(s, `IFS= read -r -d '' v <"$f"`, `v=$(tr -d '\000' <"$f"; echo x); v=${v%?}`, 1)
}

func fileScript(programs []program) string {
	var s strings.Builder
	s.WriteString("n=0\nmkdir cwd\ncd cwd\ngit init -q\nwhile read -r f; do v=\nIFS= read -r -d '' v <\"$f\"\n")
	s.WriteString("case $v in */*) n=$((n+1)); continue;; esac\n : >\"./$v\" || { n=$((n+1)); continue; }\n")
	for p, program := range programs {
		fmt.Fprintf(&s, "%s; %s\n", at(p), program.source())
	}
	return s.String() + "rm -f -- \"$v\"\nn=$((n+1))\ndone 2>/dev/null; true\n"
}

func gitScript(programs []program) string {
	var s strings.Builder
	s.WriteString("n=0\nexport GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b\nwhile read -r f; do v=\nIFS= read -r -d '' v <\"$f\"\n")
	s.WriteString("rm -rf .git f c; git init -q; printf '%s\\n' \"$v\" >f; git add f\n")
	for p, program := range programs {
		if program.name == "git log" {
			s.WriteString("git commit -q --cleanup=verbatim -m \"$v\"\n")
		}
		fmt.Fprintf(&s, "%s; %s\n", at(p), program.source())
	}
	return s.String() + "n=$((n+1))\ndone 2>/dev/null; true\n"
}

func pythons() []program {
	bytes := []string{
		"repr(b)", "repr(bytearray(b))", "b.hex()", "b.hex(':')", "b.hex(' ')", "list(b)", "tuple(b)", "json.dumps(list(b))", "base64.b64encode(b)", "base64.urlsafe_b64encode(b)", "base64.encodebytes(b)",
		"base64.b32encode(b)", "base64.b32hexencode(b)", "base64.b16encode(b)", "binascii.hexlify(b, '-')", "urllib.parse.quote(b)", "urllib.parse.quote_from_bytes(b, '')", "urllib.parse.quote_plus(b)",
		"ascii(b.decode('latin-1'))", "json.dumps(b.decode('latin-1'))", "b.decode('ascii', 'backslashreplace')", "pprint.pformat({'k': b}, width=10**6)",
		"base64.b64encode(base64.b64encode(b))", "urllib.parse.quote(base64.b64encode(b), '')", "json.dumps({'k': repr(b)})", "b'%r' % b", "array.array('B', b)", "[c - 256 if c > 127 else c for c in b]", "' '.join(f'{c:08b}' for c in b)", "', '.join(hex(c) for c in b)", "'\\\\x' + b.hex('|').replace('|', '\\\\x')", "codecs.encode(b, 'hex')",
	}
	text := []string{
		"repr(s)", "ascii(s)", "repr({'k': [s]})", "json.dumps(s)", "json.dumps(s, ensure_ascii=False)", "json.dumps({'k': [s]}, indent=2)", "json.dumps(json.dumps(s))",
		"urllib.parse.quote(s)", "urllib.parse.quote(s, safe='')", "urllib.parse.quote_plus(s)", "urllib.parse.urlencode({'k': s})", "html.escape(s)", "html.escape(s, quote=False)",
		"xml.sax.saxutils.escape(s)", "xml.sax.saxutils.quoteattr(s)", "shlex.quote(s)", "shlex.join(['cmd', '--token=' + s])", "pprint.pformat(s, width=10**6)",
		"table(s)", "table(s, quoting=csv.QUOTE_ALL)", "table(s, delimiter='\\t')", "s.encode('utf-16-le')", "s.encode('utf-16-be')", "s.encode('utf-16')",
		"s.encode('unicode_escape')", "s.encode('ascii', 'backslashreplace')", "s.encode('ascii', 'xmlcharrefreplace')", "KeyError(s)", "repr(KeyError(s))", "'%s' % [s]", "http.cookies.SimpleCookie({'k': s}).output()", "plistlib.dumps({'k': s}) if s.isprintable() or '-----BEGIN' in s else html.escape(s, quote=False)", "textwrap.indent(s, '      ')", "'E' + \"'\" + s.replace('\\\\', '\\\\\\\\').replace(\"'\", \"''\") + \"'\"",
		"json.dumps(urllib.parse.quote(s))", "base64.b64encode(json.dumps(s).encode())", "base64.b64encode(s.encode('utf-16-le'))", "html.escape(repr(s))", "shlex.quote(json.dumps(s))",
		"sqlite3.connect(':memory:').execute('select quote(?)', (s,)).fetchone()[0]", "\"'\" + s.replace(\"'\", \"''\") + \"'\"",
	}
	var list []program
	for _, name := range bytes {
		list = append(list, program{name: name})
	}
	list = append(list, program{name: "re.escape(s)", text: true, not: "pem"})
	for _, name := range text {
		list = append(list, program{name: name, text: true})
	}
	for _, name := range []string{"binascii.b2a_qp(b)", "quopri.encodestring(b)", "quopri.encodestring(b, quotetabs=True)", "email.mime.text.MIMEText(s, 'plain', 'utf-8').as_string()"} {
		list = append(list, program{name: name, wraps: "=\n", text: strings.Contains(name, "s,")})
	}
	for _, name := range []string{"base64.a85encode(b)", "base64.b85encode(b)", "uu(b)"} {
		list = append(list, program{name: name, sole: true, wraps: " "})
	}
	for _, name := range []string{"codecs.encode(s, 'rot13')", "s[::-1]", "s.encode('utf-32-le')", "s.encode('utf-32-be')"} {
		list = append(list, program{name: name, sole: true, text: true})
	}
	return append(list,
		program{name: "yaml.safe_dump({'k': {'v': s}}, width=10**6)", text: true},
		program{name: "yaml.safe_dump({'k': {'v': s}}, width=10**6, allow_unicode=True)", text: true},
		program{name: "yaml.safe_dump({'k': {'v': s}}, default_style='|')", text: true, line: true, not: "latin cjk emoji mixed control 5000"})
}

func pythonScript(programs []program) string {
	var s strings.Builder
	s.WriteString(`
import base64, binascii, codecs, csv, array, email.mime.text, html, http.cookies, io, json, os, plistlib, pprint, quopri, re, shlex, sqlite3, sys, textwrap, urllib.parse, xml.sax.saxutils, yaml
def table(s, **how):
    out = io.StringIO()
    csv.writer(out, **how).writerow(['a', s, 'b'])
    return out.getvalue()
def uu(b):
    return b''.join(binascii.b2a_uu(b[i:i+45]) for i in range(0, len(b), 45))
programs = [
`)
	for _, program := range programs {
		fmt.Fprintf(&s, "lambda b, s: %s,\n", program.source())
	}
	return s.String() + `]
for n, f in enumerate(sys.stdin.read().split()):
    b = open(f, 'rb').read()
    try:
        s = b.decode()
    except UnicodeDecodeError:
        s = None
    for p, do in enumerate(programs):
        try:
            out = do(b, s)
        except (AttributeError, TypeError):
            if s is not None:
                raise
            out = ''
        out = out if isinstance(out, bytes) else str(out).encode()
        sys.stdout.buffer.write(b'%s%d %d\n%s' % (b'MARK', n, p, out))
`
}
