package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Query is a word of the vocabulary that maps are written in.
type Query struct {
	Name string
	// Asks is the question that it puts to the records.
	Asks string
	// Number is what a number behind the name means; empty if it takes none.
	Number string

	of  store.Class // the runs whose records it sees; empty for all
	new func(param) query
}

// param is what a query can depend on beside the records.
type param struct {
	n   int       // behind its name
	now time.Time // when the report is made
}

// query is a fold over the records of all runs, one run after the other.
type query interface {
	// see is given each record of a run in order.
	see(r *record)
	// end is called when all of a run's records have been seen.
	end(s *source)
	// claims is called at last.
	claims() []Claim
}

// Queries returns the vocabulary.
func Queries() []Query {
	const runs, access = store.Sandboxes, store.Accesses
	return []Query{
		{"verification", "does the record of each run hold?", "", "", func(param) query { return &verification{} }},
		{"sequence", "is each sequence number present, or its loss declared?", "", "", func(param) query { return &sequence{} }},
		{"losses", "what does the record declare as lost?", "", runs, func(param) query { return newLosses() }},
		{"closed", "has each run a recorded start and end, and how did it end?", "", runs, func(param) query { return &closed{words: tallies{}} }},
		{"content", "does each record have its time, observer and kind?", "", runs, func(param) query { return newContent() }},
		{"clock", "whose clock gives the times, and do they ascend?", "", runs, func(param) query { return &clock{} }},
		{"published", "is each run in the host's log?", "", runs, func(param) query { return &published{} }},
		{"witnessed", "do witnesses cosign the host's log?", "", runs, func(param) query { return &witnessed{names: tallies{}} }},
		{"stamped", "does a time-stamping authority attest the time?", "", runs, func(param) query { return &stamped{} }},
		{"retained", "how old is the oldest run whose record is still whole?", "months that are asked for", runs, func(p param) query { return &retained{months: p.n, now: p.now} }},
		{"erased", "which records were erased, and by whose statement?", "", runs, func(param) query { return &erased{} }},
		{"on-failure", "what happens when the record cannot be written?", "", runs, func(param) query { return &onFailure{} }},

		{"steps", "is each step's command and exit status recorded?", "", runs, func(param) query { return newSteps() }},
		{"commands", "is each program that was started recorded, with its end?", "", runs, func(param) query { return newCommands() }},
		{"privileged", "is what ran as root recorded?", "", runs, func(param) query { return &privileged{} }},
		{"files", "are written files recorded with a hash?", "", runs, func(param) query { return &files{} }},
		{"model-calls", "are LLM API calls recorded, with their tool calls?", "", runs, func(param) query { return newModelCalls() }},
		{"isolation", "what isolated the workload from the host?", "", runs, func(param) query { return newIsolation() }},

		{"policy", "which policy was in force, and was it changed?", "", runs, func(param) query { return newPolicies() }},
		{"allowed", "did a rule of the policy in force allow all egress?", "", runs, func(param) query { return newAllowed() }},
		{"denied", "what was denied, and by which rule?", "", runs, func(param) query { return &denied{} }},
		{"revoked-flows", "were flows ended when the policy no longer allowed them?", "", runs, func(param) query { return &revokedFlows{} }},
		{"recipients", "to which hosts did data go?", "", runs, func(param) query { return newRecipients() }},
		{"probes", "did the red team's attempts get out?", "", runs, func(param) query { return &probes{} }},

		{"credential-life", "did each credential live 60 s or less unless renewed, and was it revoked?", "", runs, func(param) query { return newCredentialLife() }},
		{"credential-use", "was each credential used only while it was alive?", "", runs, func(param) query { return newCredentialUse() }},
		{"credential-refusals", "were credentials refused?", "", runs, func(param) query { return &credentialRefusals{} }},
		{"credential-exposure", "was a credential seen in a wrong place?", "", runs, func(param) query { return &exposure{} }},
		{"redaction", "were values of secrets masked before the record was written?", "", runs, func(param) query { return newRedaction() }},

		{"detection", "were anomalies found and recorded as they happened?", "", runs, func(param) query { return newDetection() }},
		{"findings", "are there findings that need review?", "", runs, func(param) query { return newFindings() }},
		{"response", "what was done about findings?", "", runs, func(param) query { return newResponse() }},
		{"disagreement", "do guest and host agree about connections?", "", runs, func(param) query { return &disagreement{rules: tallies{}} }},

		{"access", "who accessed these records?", "", access, func(param) query { return newAccess() }},
		{"access-refused", "who was refused access?", "", access, func(param) query { return newRefused() }},
	}
}

// newQuery returns a fresh fold for a word of a map, such as "denied" or "retained 12".
func newQuery(text string, now time.Time) (*asked, error) {
	name, number, _ := strings.Cut(text, " ")
	for _, q := range Queries() {
		if q.Name != name {
			continue
		}
		n, err := strconv.Atoi(number)
		if (number != "") != (q.Number != "") || number != "" && (err != nil || n < 0) {
			return nil, fmt.Errorf("query %q: want a number behind the name for %q, and only then", text, q.Number)
		}
		return &asked{Query: q, query: q.new(param{n, now})}, nil
	}
	return nil, fmt.Errorf("query %q is not in the vocabulary", name)
}

// asked is a query that is being answered.
type asked struct {
	Query
	query
	all []*source // whose records it saw
}

func (a *asked) wants(s *source) bool { return a.of == "" || a.of == s.class }

// answer returns the claims, each held against the verification of the runs that it rests on.
func (a *asked) answer() []Claim {
	claims := a.claims()
	if len(a.all) == 0 { // only access logs can be missing
		claims = []Claim{{Status: Lacks, Basis: ByHost, Text: "No access log was given to this report."}}
	}
	for i := range claims {
		c := &claims[i]
		c.Query = a.Name
		if c.runs == nil {
			c.runs = a.all
		}
		c.temper()
		if c.Status == Supports {
			c.Refs = c.Refs[:min(len(c.Refs), maxRefs)]
		}
		if c.Refs == nil {
			c.Refs = []Ref{}
		}
	}
	return claims
}

// temper takes a claim back that rests on records which no one has proven.
func (c *Claim) temper() {
	if c.Status != Supports {
		return
	}
	var unproven []string
	for _, s := range c.runs {
		if !s.proven {
			unproven = append(unproven, s.Run)
		}
	}
	if len(unproven) > 0 {
		c.Status = Lacks
		c.Text += fmt.Sprintf(" But the record of %s is not verified (%s), so this is no evidence.",
			count(len(unproven), "run"), some(unproven))
	}
}

const (
	maxRefs    = 20  // that a claim which supports has
	maxAgainst = 100 // that another claim has
	maxNames   = 8   // that a sentence lists
)

// record is a record as queries see it.
type record struct {
	audit.Record
	src *source
	row store.Row
	// readable is false for a record that was erased or cannot be decoded: only src and row say anything then.
	readable bool
	// foreign is set for a look that the report may not speak of.
	foreign bool
}

// host reports that the host saw it, and that it is of kind k.
func (r *record) host(k audit.Kind) bool {
	return r.readable && r.Observer == audit.Host && r.Kind == k
}

// tierLacks reports whether the host declares in it what the isolation tier of the run cannot observe.
func (r *record) tierLacks() bool {
	return r.host(audit.KindGap) && r.Gap.Stage == audit.StageDriver && r.Gap.Count == 0
}

// cites collects the records that a claim is about.
type cites struct {
	n    uint64 // that the sentence counts
	kept uint64 // that were cited, had there been room
	refs []Ref
	runs []*source

	host, guest bool // whether the host, or the guest, observed what was added
}

func (c *cites) add(r *record) {
	c.n++
	if r.Observer == audit.Host {
		c.host = true
	} else {
		c.guest = true
	}
	c.keep(r.src, r.row.Seq)
}

// keep cites a record without counting it.
func (c *cites) keep(s *source, seq uint64) {
	c.kept++
	if len(c.refs) < maxAgainst {
		c.refs = append(c.refs, refTo(s.Run, seq))
	}
	if n := len(c.runs); n == 0 || c.runs[n-1] != s {
		c.runs = append(c.runs, s)
	}
}

// all adds the records with these seqs.
func (c *cites) all(s *source, seqs map[string]uint64) {
	for _, seq := range slices.Sorted(maps.Values(seqs)) {
		c.n++
		c.keep(s, seq)
	}
}

// basis returns the observers of the records that were added.
func (c *cites) basis() Basis {
	switch {
	case c.host && c.guest:
		return ByBoth
	case c.host:
		return ByHost
	}
	return ByGuest
}

func (c *cites) claim(status Status, basis Basis, format string, args ...any) Claim {
	return Claim{Status: status, Basis: basis, Text: fmt.Sprintf(format, args...), Total: max(c.n, c.kept), Refs: c.refs, runs: c.runs}
}

// runsText is "in 3 runs".
func (c *cites) runsText() string { return "in " + count(len(c.runs), "run") }

// none is the claim of a query that found nothing to speak of.
func none(what string) Claim {
	return Claim{Status: NotApplicable, Basis: ByHost, Text: "No record of this kind in these runs: " + what + "."}
}

func refTo(run string, seq uint64) Ref {
	return Ref{Run: run, Seq: seq, Link: "#/runs/" + run + "?seq=" + strconv.FormatUint(seq, 10)}
}
