package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
)

// Message is one notification. Its texts are those of the record, after redaction.
type Message struct {
	ID       string    `json:"id"` // the same for each attempt and, for one record, in every process
	Type     string    `json:"type"`
	Time     time.Time `json:"timestamp"`
	Severity string    `json:"severity"`
	Host     string    `json:"host,omitempty"`
	Tenant   string    `json:"tenant,omitempty"`
	Project  string    `json:"project,omitempty"`
	Run      string    `json:"run,omitempty"`
	Seq      uint64    `json:"seq,omitempty"` // of the record that the message describes
	Step     string    `json:"step,omitempty"`
	Rule     string    `json:"rule,omitempty"`   // of a finding
	Action   string    `json:"action,omitempty"` // the reaction to a finding
	Detail   string    `json:"detail,omitempty"`
	Status   string    `json:"status,omitempty"` // of a run's end
	ExitCode *int      `json:"exit_code,omitempty"`
}

// maxDetail bounds the one text of a message that has no other bound, in bytes.
const maxDetail = 2000

// Of returns the message about a record, and whether there is one. The event must be redacted.
func Of(ev audit.Event, run string, seq uint64) (Message, bool) {
	m := Message{Run: run, Seq: seq, Time: ev.Time, Step: ev.Step}
	switch {
	case ev.Finding != nil:
		m.Type, m.Rule, m.Detail, m.Action = Finding, string(ev.Finding.Rule), ev.Finding.Detail, ev.Finding.Action
	case ev.VM != nil && ev.VM.Op == "freeze":
		m.Type, m.Detail = Frozen, ev.VM.Reason
	case ev.Kind == audit.KindRun && ev.Lifecycle != nil && ev.Lifecycle.Phase == audit.PhaseEnd:
		m.Type, m.Status, m.ExitCode, m.Detail = End, string(ev.Lifecycle.Status), ev.Lifecycle.ExitCode, ev.Lifecycle.Reason
	default:
		return Message{}, false
	}
	m.Severity = levelOf(export.SeverityOf(export.Event{Record: audit.Record{Event: ev}}))
	return m, true
}

// finish truncates the texts and sets the message's id and time if they are missing.
func (m Message) finish() Message {
	if m.Time.IsZero() {
		m.Time = time.Now()
	}
	m.Time = m.Time.UTC()
	if len(m.Detail) > maxDetail {
		m.Detail = strings.ToValidUTF8(m.Detail[:maxDetail], "") + "…"
	}
	if m.ID == "" {
		about := fmt.Sprint(m.Host, "\x00", m.Run, "\x00", m.Seq, "\x00", m.Type)
		if m.Seq == 0 {
			about += fmt.Sprint("\x00", m.Time.UnixNano(), "\x00", m.Detail)
		}
		sum := sha256.Sum256([]byte(about))
		m.ID = "msg_" + hex.EncodeToString(sum[:16])
	}
	return m
}

// body is the message in a webhook's format.
func (m Message) body(format string) []byte {
	var v any = m
	if format == "slack" {
		v = map[string]string{"text": m.slack()}
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // a struct of strings and numbers always encodes
	}
	return b
}

// slack formats the message as one text. It contains no mention, link or markup from the record.
func (m Message) slack() string {
	head := map[string]string{Finding: "Finding", Verify: "Verification failed", Frozen: "Run frozen", End: "Run ended", Test: "Test"}[m.Type]
	line := func(name, text string) string {
		if text == "" {
			return ""
		}
		return "\n" + name + ": " + escape(text)
	}
	exit := ""
	if m.ExitCode != nil {
		exit = fmt.Sprint(*m.ExitCode)
	}
	seq := ""
	if m.Seq > 0 {
		seq = fmt.Sprint(m.Seq)
	}
	return "Custody: " + head + " (" + escape(m.Severity) + ")" + line("rule", m.Rule) + line("detail", m.Detail) + line("action", m.Action) +
		line("status", m.Status) + line("exit code", exit) + line("run", m.Run) + line("record", seq) + line("step", m.Step) +
		line("project", m.Project) + line("tenant", m.Tenant) + line("host", m.Host)
}

// slackEscapes escapes the three characters for which Slack has escapes, and replaces those that begin markup or a
// mention by a similar character, or adds one of zero width.
var slackEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;",
	"*", "∗", "_", "_\u200b", "~", "∼", "`", "ˋ", "@", "@\u200b", "#", "#\u200b", "://", ":\u200b//", "[", "⁅", "]", "⁆")

func escape(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029':
			return ' '
		case r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069: // changes of text direction
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return slackEscapes.Replace(s)
}

// sign returns the header webhook-signature of the Standard Webhooks specification, version 1.
func sign(key []byte, id string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%d.", id, at.Unix())
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
