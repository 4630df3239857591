package report

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

// promise is how long a credential may live without being renewed.
const (
	promise     = 60 * time.Second
	promiseText = "60 s"
)

// holder tells credentials apart within a run.
type holder struct{ step, name, broker string }

// lease is a credential that is alive, as far as the records tell.
type lease struct {
	minted  uint64
	since   time.Time
	expires time.Time
}

// leases follows the credentials of one run.
type leases map[holder]*lease

// see takes a record in, and returns the leases that it ended.
func (l leases) see(r *record) (ended []*lease) {
	s := r.Secret
	switch s.Op {
	case audit.SecretMint:
		l[holder{r.Step, s.Name, s.Broker}] = &lease{minted: r.row.Seq, since: r.Time, expires: s.Expires}
	case audit.SecretRenew:
		for _, h := range l.of(r) {
			l[h].expires = s.Expires
		}
	case audit.SecretRevoke, audit.SecretExpire:
		for _, h := range l.of(r) {
			ended = append(ended, l[h])
			delete(l, h)
		}
	}
	return ended
}

// of returns those that a record is about: one by name, or all of a step's lease at its broker.
func (l leases) of(r *record) (list []holder) {
	for h := range l {
		if h.step == r.Step && (r.Secret.Name == "" || h.name == r.Secret.Name) && (r.Secret.Broker == "" || h.broker == r.Secret.Broker) {
			list = append(list, h)
		}
	}
	return list
}

// credentialLife holds each credential against what Custody promises of it.
type credentialLife struct {
	alive                         leases
	minted, expired, longer, left cites
	renewals, revoked             uint64
	longestPromise, longestLife   time.Duration
	brokers                       tallies
}

func newCredentialLife() *credentialLife { return &credentialLife{alive: leases{}, brokers: tallies{}} }

func (q *credentialLife) see(r *record) {
	if !r.host(audit.KindSecret) {
		return
	}
	s := r.Secret
	switch s.Op {
	case audit.SecretMint:
		q.minted.add(r)
		q.brokers.add(s.Broker, 1)
	case audit.SecretRenew:
		q.renewals++
	case audit.SecretExpire:
		q.expired.add(r)
	}
	if s.Op == audit.SecretMint || s.Op == audit.SecretRenew {
		if ttl := time.Duration(s.TTLNS); ttl > promise {
			q.longer.add(r)
		} else {
			q.longestPromise = max(q.longestPromise, ttl)
		}
	}
	for _, l := range q.alive.see(r) {
		q.longestLife = max(q.longestLife, r.Time.Sub(l.since))
		if s.Op == audit.SecretRevoke {
			q.revoked++
		}
	}
}

func (q *credentialLife) end(s *source) {
	if s.ended {
		var seqs []uint64
		for _, l := range q.alive {
			seqs = append(seqs, l.minted)
		}
		slices.Sort(seqs)
		for _, seq := range seqs {
			q.left.n++
			q.left.keep(s, seq)
		}
	}
	clear(q.alive)
}

func (q *credentialLife) claims() []Claim {
	if q.minted.n == 0 {
		return []Claim{none("no credential was minted")}
	}
	var claims []Claim
	if q.longer.n == 0 {
		claims = append(claims, q.minted.claim(Supports, ByHost,
			"Minted %s: %s (%s). None was promised more than %s at a time; the longest promise was %s. Renewals: %s. Revoked: %s, the longest-lived after %s.",
			q.minted.runsText(), count(q.minted.n, "credential"), q.brokers, promiseText, span(q.longestPromise), number(q.renewals), number(q.revoked), span(q.longestLife)))
	} else {
		claims = append(claims, q.longer.claim(Contradicts, ByHost, "PROMISED FOR MORE THAN %s at a time: %s.", promiseText, count(q.longer.n, "credential")))
	}
	if q.expired.n > 0 {
		claims = append(claims, q.expired.claim(Contradicts, ByHost, "RAN OUT OR COULD NOT BE REVOKED: %s.", count(q.expired.n, "credential")))
	}
	if q.left.n > 0 {
		claims = append(claims, q.left.claim(Contradicts, ByHost, "NO REVOCATION IS RECORDED of %s whose run has ended. The records cited are their mintings.", count(q.left.n, "credential")))
	}
	return claims
}

// credentialUse looks whether credentials were used only while they lived.
type credentialUse struct {
	alive     leases
	good, bad cites
	hosts     tallies
}

func newCredentialUse() *credentialUse { return &credentialUse{alive: leases{}, hosts: tallies{}} }

func (q *credentialUse) see(r *record) {
	if !r.host(audit.KindSecret) {
		return
	}
	q.alive.see(r)
	if r.Secret.Op != audit.SecretUse {
		return
	}
	for _, h := range q.alive.named(r.Secret.Name) {
		if l := q.alive[h]; l.expires.IsZero() || !r.Time.After(l.expires) {
			q.good.add(r)
			q.hosts.add(string(r.Secret.Host), 1)
			return
		}
	}
	q.bad.add(r)
}

// named returns the holders of a credential, whichever their step is: a header's secret is at
// the disposal of all steps if none names it.
func (l leases) named(name string) (list []holder) {
	for h := range l {
		if h.name == name {
			list = append(list, h)
		}
	}
	return list
}

func (q *credentialUse) end(*source) { clear(q.alive) }

func (q *credentialUse) claims() []Claim {
	if q.good.n+q.bad.n == 0 {
		return []Claim{none("the gateway put no credential into a request")}
	}
	var claims []Claim
	if q.good.n > 0 {
		claims = append(claims, q.good.claim(Supports, ByHost, "The gateway put credentials into %s %s, each time while they were alive; the sandbox had none of these values. By host: %s.",
			count(q.good.n, "request"), q.good.runsText(), q.hosts))
	}
	if q.bad.n > 0 {
		claims = append(claims, q.bad.claim(Contradicts, ByHost, "USED WHILE NOT ALIVE, as far as the record tells: a credential, in %s.", count(q.bad.n, "request")))
	}
	return claims
}

// credentialRefusals counts what was not given.
type credentialRefusals struct{ cites }

func (q *credentialRefusals) see(r *record) {
	if r.host(audit.KindSecret) && r.Secret.Op == audit.SecretRefuse {
		q.add(r)
	}
}

func (q *credentialRefusals) end(*source) {}

func (q *credentialRefusals) claims() []Claim {
	if q.n == 0 {
		return []Claim{none("no credential was refused")}
	}
	return []Claim{q.claim(Supports, ByHost, "A credential was asked for and refused %s, and the record says why.", count(q.n, "time"))}
}

// exposure looks for findings about credentials.
type exposure struct {
	cites
	minted cites
	rules  tallies
}

// aboutCredential reports whether a rule of findings is about credentials. Those of a newer version are recognised by their names.
func aboutCredential(rule audit.Rule) bool {
	if info, ok := rule.Info(); ok {
		return info.Credential
	}
	name := string(rule)
	return strings.HasPrefix(name, "secret-") || strings.HasPrefix(name, "placeholder-") || strings.HasPrefix(name, "token-")
}

func (q *exposure) see(r *record) {
	switch {
	case r.host(audit.KindSecret) && r.Secret.Op == audit.SecretMint:
		q.minted.add(r)
	case r.host(audit.KindFinding) && aboutCredential(r.Finding.Rule):
		if q.rules == nil {
			q.rules = tallies{}
		}
		q.add(r)
		q.rules.add(string(r.Finding.Rule), 1)
	}
}

func (q *exposure) end(*source) {}

func (q *exposure) claims() []Claim {
	switch {
	case q.n > 0:
		return []Claim{q.claim(Contradicts, ByHost, "A CREDENTIAL TURNED UP WHERE IT DOES NOT BELONG: %s %s (%s).", count(q.n, "finding"), q.runsText(), q.rules)}
	case q.minted.n == 0:
		return []Claim{none("no credential was minted")}
	}
	return []Claim{q.minted.claim(Supports, ByHost,
		"No finding says that one of %s turned up in output, names, connections or at other hosts, in the forms that are looked for.", count(q.minted.n, "minted credential"))}
}

// redaction looks for what the redactor left.
type redaction struct {
	rules   cites
	digests tallies
	masked  cites
	answers uint64
}

func newRedaction() *redaction { return &redaction{digests: tallies{}} }

func (q *redaction) see(r *record) {
	switch {
	case r.host(audit.KindRun) && r.Lifecycle.Phase == audit.PhaseStart && r.Lifecycle.RulesetDigest != "":
		q.rules.add(r)
		q.digests.add(r.Lifecycle.RulesetDigest, 1)
	case r.host(audit.KindHTTP):
		q.answers += uint64(max(r.HTTP.Redacted, 0))
	}
	if r.readable && bytes.Contains(r.row.Body, []byte("[REDACTED:")) {
		q.masked.add(r)
	}
}

func (q *redaction) end(*source) {}

func (q *redaction) claims() []Claim {
	if q.rules.n == 0 {
		return []Claim{none("no run names the rules of its redactor")}
	}
	claims := []Claim{q.rules.claim(Supports, ByHost, "The redactor's rules in force are named by digest in %s: %s. Values masked in answers before the sandbox got them: %s.",
		count(q.rules.n, "run"), some(q.digests.names()), number(q.answers))}
	if q.masked.n > 0 {
		claims = append(claims, q.masked.claim(Supports, ByHost, "The redactor's mark stands in place of a value in %s. A workload can print such a mark itself.", count(q.masked.n, "record")))
	}
	return claims
}
