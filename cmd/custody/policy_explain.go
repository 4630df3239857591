package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/project"
)

type policyExplainCmd struct {
	File    string     `arg:"" help:"The project's file."`
	Target  string     `arg:"" name:"host[:port]" help:"A host or an address, with a port or without one, or a URL."`
	UDP     bool       `name:"udp" help:"The port is of UDP."`
	Method  string     `placeholder:"METHOD" help:"The request's method (default for a URL: GET)."`
	Address netip.Addr `placeholder:"ADDR" help:"Where the name leads, as DNS would say."`
	JSON    bool       `name:"json" help:"One JSON object."`
}

// explanation is the answer. Verdict, rule and reason are as they would stand in a record.
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
	q, err := c.question()
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

// question reads what is asked about.
func (c policyExplainCmd) question() (netpolicy.Question, error) {
	q := netpolicy.Question{Addr: c.Address}
	host, path := c.Target, "/"
	scheme, rest, isURL := strings.Cut(c.Target, "://")
	if isURL {
		if scheme != "https" && scheme != "http" {
			return q, fmt.Errorf("%q: a URL begins with https:// or http://", c.Target)
		}
		end := strings.IndexAny(rest+"/", "/?#")
		host, path = rest[:end], rest[end:]
		path = path[:strings.IndexAny(path+"?", "?#")] // as it is on the wire: nothing is cleaned or decoded
		path = "/" + strings.TrimPrefix(path, "/")
		q.Port = netpolicy.Port{Proto: "tcp", Number: map[string]uint16{"https": 443, "http": 80}[scheme]}
	}
	host, port, err := netpolicy.SplitPort(host)
	if err != nil {
		return q, fmt.Errorf("%q: %w", c.Target, err)
	}
	if port != 0 {
		q.Port = netpolicy.Port{Proto: "tcp", Number: port}
	}
	if c.UDP {
		if q.Port.Number == 0 || isURL {
			return q, fmt.Errorf("%q: --udp needs a port, as in ns.example.com:53", c.Target)
		}
		q.Port.Proto = "udp"
	}
	if isURL || c.Method != "" {
		q.Request = &netpolicy.Request{Method: strings.ToUpper(c.Method), Path: path}
		if c.Method == "" {
			q.Request.Method = "GET"
		}
	}
	if c.Method != "" && q.Port == (netpolicy.Port{}) {
		q.Port = netpolicy.Port{Proto: "tcp", Number: 443}
	}
	return q, c.destination(host, &q)
}

// destination sets the question's name or address.
func (c policyExplainCmd) destination(host string, q *netpolicy.Question) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		if q.Addr.IsValid() {
			return fmt.Errorf("%q is an address: it leads nowhere else", host)
		}
		q.Addr = addr
		return nil
	}
	name, ok := netpolicy.Name(host)
	if !ok {
		return fmt.Errorf("%q is neither a host name nor an address, so nothing can allow it; write names of other scripts in their xn-- form", host)
	}
	q.Name = name
	return nil
}
