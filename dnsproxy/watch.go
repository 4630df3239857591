package dnsproxy

import (
	"context"
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/net/publicsuffix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
)

// Thresholds at which names look like data. Ordinary names of CDNs and load balancers stay below them: they have up to
// 32 random characters in a row, and few such names are looked up.
const (
	longData   = 120              // characters below a domain in one name
	longRun    = 36               // random characters in a row, in one name
	countedRun = 16               // the length from which on random characters are added up,
	manyData   = 1500             // and the sum that is reported
	manyNames  = 400              // distinct names below one domain, random or not
	window     = 10 * time.Minute // for both counts
)

// Limits of memory and of findings.
const (
	maxDomains  = 1024 // watched domains; the least recently used one is evicted
	sketchBits  = 2048 // per domain; enough to count manyNames
	maxFindings = 30   // per window, over all domains
	firstPause  = window
	maxDoubling = 7 // doublings of the pause between findings about one domain
)

// watch detects names that carry data, whether their queries are answered or denied. It uses at most about half a
// megabyte.
type watch struct {
	seed maphash.Seed

	mu         sync.Mutex // guards the fields below
	domains    *simplelru.LRU[string, *domain]
	since      time.Time // the start of the window of reported
	reported   int
	unreported int // findings over the limit, since the last reported one
}

// domain counts the names below one domain. It has one bit for each hash of a name, so the count is slightly low.
type domain struct {
	since  time.Time
	seen   [sketchBits / 64]uint64
	names  int
	data   int
	raised int
	quiet  time.Time // until when no finding is raised
}

func newWatch() *watch {
	l, err := simplelru.NewLRU[string, *domain](maxDomains, nil)
	if err != nil {
		panic(err) // the size is positive
	}
	return &watch{seed: maphash.MakeSeed(), domains: l}
}

// report posts the findings that a query raises.
func (s *session) report(ctx context.Context, name string, v netpolicy.Verdict) error {
	below := baseOf(name, v)
	if below == "" {
		return nil
	}
	for _, f := range s.watch.see(name, below, !v.Allow, time.Now()) {
		if err := s.finding(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// baseOf returns the domain whose owner can read the names below it: that of a rule's "*." pattern, or the registered
// domain. It is empty if a rule has the exact name, which the guest cannot vary.
func baseOf(name string, v netpolicy.Verdict) string {
	if v.Rule != nil {
		base, below := v.Rule.Pattern.Name()
		if !below {
			return ""
		}
		return base
	}
	if base, err := publicsuffix.EffectiveTLDPlusOne(name); err == nil {
		return base
	}
	labels := strings.Split(name, ".")
	return strings.Join(labels[max(0, len(labels)-2):], ".")
}

// see counts a name below a domain and returns the findings that it raises.
func (w *watch) see(name, base string, denied bool, now time.Time) []audit.Finding {
	left := strings.TrimSuffix(strings.TrimSuffix(name, base), ".")
	run := longestRun(left)
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []audit.Finding
	if denied {
		if d := w.note(".", base, 0, now); d.names >= manyNames {
			out = w.raise(out, d, now, audit.RuleDNSSweep, fmt.Sprintf("%d domains were queried and denied within %s", d.names, now.Sub(d.since).Round(time.Second)))
		}
	}
	if left == "" {
		return out
	}
	counted := 0
	if run >= countedRun {
		counted = len(left)
	}
	d := w.note(base, left, counted, now)
	switch {
	case len(left) >= longData:
		return w.raise(out, d, now, audit.RuleDNSTunnel, fmt.Sprintf("a name below %s is %d characters long", base, len(left)))
	case run >= longRun:
		return w.raise(out, d, now, audit.RuleDNSTunnel, fmt.Sprintf("a name below %s has %d random characters in a row", base, run))
	case d.data >= manyData:
		return w.raise(out, d, now, audit.RuleDNSTunnel, fmt.Sprintf("random names below %s came to %d characters within %s", base, d.data, now.Sub(d.since).Round(time.Second)))
	case d.names >= manyNames:
		return w.raise(out, d, now, audit.RuleDNSTunnel, fmt.Sprintf("%d different names below %s within %s", d.names, base, now.Sub(d.since).Round(time.Second)))
	}
	return out
}

// note counts a name below a domain, if it is new, with the number of its data characters.
func (w *watch) note(base, left string, data int, now time.Time) *domain {
	d, ok := w.domains.Get(base)
	if !ok {
		d = &domain{since: now}
		w.domains.Add(base, d)
	}
	if now.Sub(d.since) >= window {
		d.begin(now)
	}
	bit := maphash.String(w.seed, left) % sketchBits
	if d.seen[bit/64]>>(bit%64)&1 == 0 {
		d.seen[bit/64] |= 1 << (bit % 64)
		d.names++
		d.data += data
	}
	return d
}

// begin starts a new window.
func (d *domain) begin(now time.Time) {
	d.since, d.seen, d.names, d.data = now, [sketchBits / 64]uint64{}, 0, 0
}

// raise adds a finding, unless the domain had one recently or the limit is reached. The pause of a domain doubles with
// each finding.
func (w *watch) raise(out []audit.Finding, d *domain, now time.Time, rule audit.Rule, detail string) []audit.Finding {
	if now.Before(d.quiet) {
		return out
	}
	d.quiet = now.Add(firstPause << min(d.raised, maxDoubling))
	d.raised++
	d.begin(now)
	if now.Sub(w.since) >= window {
		w.since, w.reported = now, 0
	}
	if w.reported == maxFindings {
		w.unreported++
		return out
	}
	w.reported++
	if w.unreported > 0 {
		detail += fmt.Sprintf("; %d findings before this were over the limit and were not recorded", w.unreported)
		w.unreported = 0
	}
	return append(out, audit.Finding{Rule: rule, Detail: detail})
}

// longestRun returns the length of the longest run of letters and digits that looks random: without hyphens and dots,
// and with as few vowels, or as many digits, as encoded data but not words have. Escapes count as random, because host
// names have none.
func longestRun(s string) int {
	best, start := 0, 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) && s[i] != '.' && s[i] != '-' && s[i] != '_' {
			continue
		}
		if i-start > best && random(s[start:i]) {
			best = i - start
		}
		start = i + 1
	}
	return best
}

// random reports whether a run looks random. Two of five letters in English are vowels, one of six in Base32 and in
// Base64, one of eight hexadecimal digits.
func random(row string) bool {
	var vowels, digits, escapes int
	for i := range len(row) {
		switch c := row[i]; {
		case c == 'a' || c == 'e' || c == 'i' || c == 'o' || c == 'u':
			vowels++
		case c >= '0' && c <= '9':
			digits++
		case c == '\\':
			escapes++
		}
	}
	return escapes > 0 || vowels*100 < len(row)*25 || digits*100 > len(row)*15
}
