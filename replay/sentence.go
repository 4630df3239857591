package replay

import (
	"strconv"
	"strings"

	"github.com/custody-project/custody/audit"
)

// sentence describes what a record says, with the guest's text in quotes.
func sentence(m *moment) string {
	who := "The host saw"
	if !m.host() {
		who = "The guest says"
	}
	text := who + ": " + string(m.kind) + " " + escape(string(m.label()))
	switch p := m.what.(type) {
	case *audit.Flow:
		text = flowSentence(m, p)
	case *audit.DNS:
		text = "The guest asked for " + escape(p.Type) + " of " + quote(p.Name) + " and the answer was " + answer(p) + "."
		if !asked(p) {
			text = "The gateway looked up " + quote(p.Name) + " and found " + answer(p) + "."
		}
		text += because(p.Verdict, p.Rule, p.Reason)
	case *audit.HTTP:
		text = "A request " + quote(p.Method) + " " + quote(p.Host) + " " + quote(p.Path) + "." + because(p.Verdict, p.Rule, p.Reason)
	}
	if m.state == erased {
		return "The record was erased: custody verify prints when and why."
	}
	if m.state == unreadable {
		return "The record cannot be read."
	}
	return strings.TrimSuffix(text, ".") + "."
}

func flowSentence(m *moment, f *audit.Flow) string {
	to := escape(f.Proto) + " to " + destination(f)
	switch {
	case !m.host():
		return "A process of the guest claims that it tried " + to + "."
	case !m.enforced():
		return "The host saw that a process tried " + to + "."
	}
	switch f.State {
	case audit.FlowDeny:
		times := ""
		if f.Count > 1 {
			times = ", " + strconv.FormatUint(f.Count, 10) + " packets"
		}
		return "The host denied " + to + times + "." + because(f.Verdict, f.Rule, f.Reason)
	case audit.FlowRevoke:
		return "The host ended the flow over " + to + ", because the policy changed." + because(f.Verdict, f.Rule, f.Reason)
	}
	return "The host let " + to + " through (" + escape(string(f.State)) + ")." + because(f.Verdict, f.Rule, f.Reason)
}

func because(v audit.Verdict, rule, reason string) string {
	text := ""
	switch {
	case v == audit.Allow && rule != "":
		text = " Allowed by the rule " + escape(rule)
	case v == audit.Deny && (rule == "" || rule == "default"):
		text = " Denied: no rule names it"
	case v == audit.Deny:
		text = " Denied by the rule " + escape(rule)
	}
	if reason != "" {
		text += ": " + escape(reason)
	}
	return text + "."
}
