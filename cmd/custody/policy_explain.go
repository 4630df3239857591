//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/project"
)

type policyExplainCmd struct {
	File    string     `arg:"" help:"The project's file."`
	Target  string     `arg:"" name:"host[:port]" help:"A host or an address, with a port or without one, or a URL."`
	UDP     bool       `name:"udp" help:"Check UDP instead of TCP."`
	Method  string     `placeholder:"METHOD" help:"The request's method (default for a URL: GET)."`
	Address netip.Addr `placeholder:"ADDR" help:"An address that the name resolves to."`
	JSON    bool       `name:"json" help:"One JSON object."`
}

// explanation is the answer. Verdict, rule and reason are as in a record.
type explanation struct {
	Target  string        `json:"target"`
	Verdict audit.Verdict `json:"verdict"`
	Rule    string        `json:"rule"`
	File    string        `json:"file"`
	Line    int           `json:"line,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	Guest   string        `json:"guest"` // what the guest gets
	Digest  string        `json:"policy_digest"`
}

func (c policyExplainCmd) Run(a *app) error {
	q, err := netpolicy.ParseQuestion(c.Target, netpolicy.QuestionOptions{UDP: c.UDP, Method: c.Method, Addr: c.Address})
	if err != nil {
		return err
	}
	f, err := project.Load(a.ctx, c.File)
	if err != nil {
		return err
	}
	p, err := f.Policy()
	if err != nil {
		return err
	}
	v := netpolicy.Decide(p, q)
	e := explanation{
		Target: q.String(), Verdict: audit.Deny, Rule: v.RuleName(), File: c.File, Reason: string(v.Reason), Guest: p.Effect(q, v), Digest: p.Digest(),
	}
	if v.Allow {
		e.Verdict = audit.Allow
	}
	if v.Rule != nil {
		e.Line = v.Rule.Line
	}
	if err := e.write(a.stdout, c.JSON); err != nil || v.Allow {
		return err
	}
	return exitCode(1)
}

func (e explanation) write(w io.Writer, asJSON bool) error {
	if asJSON {
		out := json.NewEncoder(w)
		out.SetEscapeHTML(false)
		return out.Encode(e)
	}
	word, rule := "denied", e.Rule+" (what no rule names)"
	if e.Verdict == audit.Allow {
		word = "allowed"
	}
	if e.Line > 0 {
		rule = fmt.Sprintf("%s (%s:%d)", e.Rule, e.File, e.Line)
	}
	text := fmt.Sprintf("%s: %s\n  rule:   %s\n", word, e.Target, rule)
	if e.Reason != "" {
		text += fmt.Sprintf("  reason: %s\n", e.Reason)
	}
	_, err := fmt.Fprintf(w, "%s  guest:  %s\n  policy: %s\n", text, e.Guest, e.Digest)
	return err
}
