package audit

import "slices"

// Rule is the rule that raises a finding.
type Rule string

// The rules of findings.
const (
	RuleConnectUnseen          Rule = "connect-unseen"
	RuleFlowUnclaimed          Rule = "flow-unclaimed"
	RuleDNSTunnel              Rule = "dns-tunnel"
	RuleDNSSweep               Rule = "dns-sweep"
	RuleGatewayPanic           Rule = "gateway-panic"
	RuleAnswerOverrun          Rule = "answer-overrun"
	RuleSecretInDNS            Rule = "secret-in-dns"
	RuleSecretInOutput         Rule = "secret-in-output"
	RuleSecretInFlow           Rule = "secret-in-flow"
	RuleSecretToOtherHost      Rule = "secret-to-other-host"
	RulePlaceholderToOtherHost Rule = "placeholder-to-other-host"
	RuleSecretAfterAnswer      Rule = "secret-after-answer"
	RuleSecretAfterStep        Rule = "secret-after-step"
	RuleTokenMisuse            Rule = "token-misuse"
	RuleSecretKnownLate        Rule = "secret-known-late"
)

// RuleInfo describes a rule of findings: one entry in the table of rules.
type RuleInfo struct {
	Rule Rule
	// Text describes what raises the finding, in one line.
	Text string
	// Detail has the limits or circumstances that docs/events.md adds, empty if there are none.
	Detail string
	// Disagreement is set where guest and host contradict each other.
	Disagreement bool
	// Credential is set if a credential was found in a wrong place: docs/secrets.md.
	Credential bool
}

// rules is the table. It is immutable.
var rules = []RuleInfo{
	{Rule: RuleConnectUnseen, Disagreement: true, Text: "a process of the guest claims a connection that the host never saw", Detail: "Written at the run's end"},
	{Rule: RuleFlowUnclaimed, Disagreement: true, Text: "the host saw a flow that no process of the guest claims", Detail: "Written at the run's end"},
	{Rule: RuleDNSTunnel, Text: "names below one domain look like data",
		Detail: "120 characters or more in one name, 36 random ones in a row, or within 10 minutes 1,500 characters of random names or 400 different names. Answered or not"},
	{Rule: RuleDNSSweep, Text: "very many different domains were queried and denied", Detail: "400 within 10 minutes"},
	{Rule: RuleGatewayPanic, Text: "a mistake in the gateway's code ended a connection", Detail: "Please report it"},
	{Rule: RuleAnswerOverrun, Text: "a host sent more than its answer, with no secret in it, on a connection that had carried a credential",
		Detail: "HTTP/1 only; the credential is `finding.secret`. The excess was dropped and the connection closed"},
	{Rule: RuleSecretInDNS, Credential: true, Text: "a DNS query contained a value or a placeholder"},
	{Rule: RuleSecretInOutput, Credential: true, Text: "a step printed a value that a step of the run gets", Detail: "Whether this one binds it or not"},
	{Rule: RuleSecretInFlow, Credential: true, Text: "the TLS server name of a connection contained a value"},
	{Rule: RuleSecretToOtherHost, Credential: true, Text: "a request carried a value to a host that its secret does not allow",
		Detail: "One that the secret's `hosts` do not name, or that a header secret's rules do not"},
	{Rule: RulePlaceholderToOtherHost, Credential: true, Text: "a request carried a placeholder to another host than its rule's"},
	{Rule: RuleSecretAfterAnswer, Credential: true, Text: "a host sent a value beyond the end of an answer, on a connection that had carried a credential",
		Detail: "HTTP/1 only: a body after HEAD, 204 or 304, or longer than its Content-Length"},
	{Rule: RuleSecretAfterStep, Credential: true, Text: "a credential was used after its step had ended"},
	{Rule: RuleTokenMisuse, Credential: true, Text: "Vault saw a step's token from elsewhere, or for another path"},
	{Rule: RuleSecretKnownLate, Credential: true, Text: "the record already had the bytes of a newly minted value; they could not be masked earlier"},
}

// Rules returns the table of the rules that this version raises findings by.
func Rules() []RuleInfo { return slices.Clone(rules) }

// Info returns r's entry in the table; ok is false where this version does not know r.
func (r Rule) Info() (info RuleInfo, ok bool) {
	i := slices.IndexFunc(rules, func(info RuleInfo) bool { return info.Rule == r })
	if i < 0 {
		return RuleInfo{}, false
	}
	return rules[i], true
}
