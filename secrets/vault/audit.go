package vault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// pollEvery is the interval at which the audit log is read.
	pollEvery = 100 * time.Millisecond
	// probeTime is how long Vault may take to log a request.
	probeTime = 3 * time.Second
	// maxHeard, maxWaiting and maxAddresses bound the stored entries. If there are more, a probe fails, and a token has
	// so many uses that some are reported.
	maxHeard, maxWaiting, maxAddresses = 1024, 1024, 32
)

// auditLog reads the log of Vault's file audit device (https://developer.hashicorp.com/vault/docs/audit/schema) and
// reports to grants the uses of their tokens by others. It reads only while there are grants.
type auditLog struct {
	place Place
	tail  *tail // used only by read

	mu        sync.Mutex // guards the fields below
	users     int        // grants, and a probe
	live      map[string]*watch
	addresses []string          // addresses of the broker, as Vault logged them
	heard     map[string]string // accessor by request, during a probe
}

// entry has the fields of a line of the log that are needed.
type entry struct {
	Auth struct {
		Accessor string `json:"accessor"`
	} `json:"auth"`
	Request struct {
		ID        string `json:"id"`
		Operation string `json:"operation"`
		Path      string `json:"path"`
		Accessor  string `json:"client_token_accessor"`
		Address   string `json:"remote_address"`
	} `json:"request"`
}

// watch observes the uses of one token.
type watch struct {
	log   *auditLog
	given string      // path that a delivered token reads; empty: the token never leaves the broker
	out   chan string // the grant's channel

	// The log's mu guards the fields below.
	ids     map[string]bool // of the broker's requests
	settled bool            // the broker makes no further requests
	waiting []entry         // entries to check after settled
	last    string          // the last reported request: the log also has a line for its response
}

func openAudit(p Place) (*auditLog, error) {
	t, err := openTail(p.Audit)
	if err != nil {
		return nil, fmt.Errorf("CUSTODY_VAULT_AUDIT: Vault's audit log: %w", err)
	}
	return &auditLog{place: p, tail: t, live: map[string]*watch{}}, nil
}

// read follows the log until ctx ends.
func (l *auditLog) read(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if l.wanted() {
			l.tail.poll(ctx, l.line)
		} else {
			l.tail.skip()
		}
	}
}

// close must be called after read has returned.
func (l *auditLog) close() { l.tail.close() }

func (l *auditLog) wanted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.users > 0
}

// use starts reading at the current end of the log, if it is not being read.
func (l *auditLog) use(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users += n
}

// line checks a line of the log; cut is set if it was truncated.
func (l *auditLog) line(text []byte, cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.concerns(text) {
		return
	}
	var e entry
	if err := json.Unmarshal(text, &e); err != nil {
		l.unreadable(text, cut)
		return
	}
	if l.heard != nil && len(l.heard) < maxHeard {
		l.heard[e.Request.ID] = or(e.Auth.Accessor, e.Request.Accessor)
	}
	accessor := or(e.Auth.Accessor, e.Request.Accessor)
	if w := l.live[accessor]; w != nil {
		w.saw(e)
	}
}

// concerns avoids the parsing of lines about other tokens.
func (l *auditLog) concerns(text []byte) bool {
	if l.heard != nil {
		return true
	}
	for accessor := range l.live {
		if bytes.Contains(text, []byte(accessor)) {
			return true
		}
	}
	return false
}

// unreadable reports a line with a live token that cannot be parsed: the broker's own requests do not cause such lines.
func (l *auditLog) unreadable(text []byte, cut bool) {
	for accessor, w := range l.live {
		if bytes.Contains(text, []byte(accessor)) {
			w.report(fmt.Sprintf("Vault's audit log has an entry about the step's token that cannot be read (too long: %t)", cut))
		}
	}
}

// saw checks a use, after the broker's own requests are known.
func (w *watch) saw(e entry) {
	if !w.settled {
		if len(w.waiting) < maxWaiting {
			w.waiting = append(w.waiting, e)
		}
		return
	}
	if what := w.judge(e); what != "" && e.Request.ID != w.last {
		w.last = e.Request.ID
		w.report(what)
	}
}

// judge returns what is wrong with a use, or "".
func (w *watch) judge(e entry) string {
	r := e.Request
	use := fmt.Sprintf("%s of %.200q from %s", r.Operation, r.Path, r.Address)
	switch {
	case w.ids[r.ID]:
		w.log.learn(r.Address)
		return ""
	case w.given == "":
		return "the step's token was used at Vault, although it never left custody: " + use
	case !w.log.isOurs(r.Address):
		return "the step's token was used at Vault from an address that is not this host's: " + use
	case r.Path == w.given && r.Operation == "read", isPreflight(r.Path, w.given):
		return ""
	}
	return "the step's token was used at Vault for something other than reading its path: " + use
}

// isPreflight reports whether path is the request that Vault's command line makes before it reads given, to find the
// engine's type.
func isPreflight(path, given string) bool {
	mount, _, _ := strings.Cut(given, "/")
	rest, ok := strings.CutPrefix(path, "sys/internal/ui/mounts/")
	return ok && (rest == given || rest == strings.Replace(given, mount+"/data/", mount+"/", 1))
}

// isOurs reports whether an address is one of the broker's in the log, or one of this host's: a sandbox's connections
// may use another than the broker's.
func (l *auditLog) isOurs(address string) bool {
	if slices.Contains(l.addresses, address) {
		return true
	}
	ip := net.ParseIP(address)
	all, err := l.place.Addresses()
	return err == nil && slices.ContainsFunc(all, ip.Equal)
}

// learn stores the addresses of the broker's requests.
func (l *auditLog) learn(address string) {
	if len(l.addresses) < maxAddresses && !slices.Contains(l.addresses, address) {
		l.addresses = append(l.addresses, address)
	}
}

func (w *watch) report(what string) {
	select {
	case w.out <- what:
	default: // the channel is full
	}
}

// made stores the id of a request of the broker.
func (w *watch) made(id string) {
	if w == nil {
		return
	}
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	w.ids[id] = true
}

// settle ends the time in which the broker makes requests.
func (w *watch) settle() {
	if w == nil {
		return
	}
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	w.settled = true
	for _, e := range w.waiting {
		w.saw(e)
	}
	w.waiting = nil
}

// watch starts to observe the uses of a token of g; it returns nil without an audit log.
func (g *grant) watch(t token, given string) *watch {
	l := g.broker.log
	if l == nil {
		return nil
	}
	w := &watch{log: l, given: given, out: g.misuse, ids: map[string]bool{}, settled: given != ""}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live[t.accessor] = w
	return w
}

// unwatch ends the reports. It may be called again.
func (g *grant) unwatch() {
	l := g.broker.log
	if l == nil || g.unwatched {
		return
	}
	g.unwatched = true
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users--
	for _, t := range g.all() {
		delete(l.live, t.accessor)
	}
	close(g.misuse)
}

// probe checks that the log belongs to this Vault, and that it distinguishes tokens.
func (l *auditLog) probe(ctx context.Context, s *session) error {
	l.listen(map[string]string{}, 1)
	defer l.listen(nil, -1)
	answer, err := s.ask(ctx, http.MethodGet, "auth/token/lookup-self", nil)
	if err != nil || answer == nil {
		return errors.Join(errors.New("no answer to lookup-self"), err)
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	for {
		accessor, ok := l.heardOf(answer.RequestID)
		switch {
		case ok && accessor == answer.Data["accessor"]:
			return nil
		case ok:
			return errors.New("Vault's audit log hides which token was used: enable its file device with hmac_accessor=false, or unset CUSTODY_VAULT_AUDIT")
		}
		select {
		case <-ctx.Done():
			return errors.New("Vault does not log requests to the file in CUSTODY_VAULT_AUDIT: is it this Vault's audit log?")
		case <-time.After(pollEvery / 2):
		}
	}
}

func (l *auditLog) listen(heard map[string]string, users int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = heard
	l.users += users
}

func (l *auditLog) heardOf(request string) (accessor string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	accessor, ok = l.heard[request]
	return accessor, ok
}
