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
	// pollEvery is how often the audit log is looked at.
	pollEvery = 100 * time.Millisecond
	// probeTime is how long Vault may take to log a request.
	probeTime = 3 * time.Second
	// maxHeard, maxWaiting and maxAddresses bound what is remembered of the log. What comes
	// beyond them is not: a probe fails then, and uses of a token are many enough to be reported.
	maxHeard, maxWaiting, maxAddresses = 1024, 1024, 32
)

// auditLog reads the log of Vault's file audit device (https://developer.hashicorp.com/vault/docs/audit/schema) and
// reports to grants the uses of their tokens that were not their own. It is read only while there are grants.
type auditLog struct {
	tail *tail // of read's alone

	mu        sync.Mutex // guards what follows
	users     int        // grants, and a probe
	live      map[string]*watch
	addresses []string          // from which Vault saw us
	heard     map[string]string // accessor by request, while there is a probe
}

// entry is what is of interest in a line of the log.
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

// watch is about the uses of one token.
type watch struct {
	log   *auditLog
	given string      // path that a token reads which is delivered; empty: the token never leaves the broker
	out   chan string // the grant's

	// The log's mu guards what follows.
	ids     map[string]bool // of the broker's own requests
	settled bool            // there will be no more of these
	waiting []entry         // until then
	last    string          // request that was reported: it has a line, and its answer another one
}

func openAudit(path string) (*auditLog, error) {
	t, err := openTail(path)
	if err != nil {
		return nil, fmt.Errorf("CUSTODY_VAULT_AUDIT: Vault's audit log: %w", err)
	}
	return &auditLog{tail: t, live: map[string]*watch{}}, nil
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

// close is called when read has returned.
func (l *auditLog) close() { l.tail.close() }

func (l *auditLog) wanted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.users > 0
}

// use has the log read from where it ends now, at the latest.
func (l *auditLog) use(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users += n
}

// line judges a line of the log; cut is set if it was longer than what is kept.
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

// concerns saves the reading of lines that are about others.
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

// unreadable reports a line with a live token in it that cannot be judged: nothing of ours is that long.
func (l *auditLog) unreadable(text []byte, cut bool) {
	for accessor, w := range l.live {
		if bytes.Contains(text, []byte(accessor)) {
			w.report(fmt.Sprintf("Vault's audit log has an entry about the step's token that cannot be read (too long: %t)", cut))
		}
	}
}

// saw judges a use, once it is known which were the broker's own.
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

// judge returns what is wrong with a use, if anything is.
func (w *watch) judge(e entry) string {
	r := e.Request
	use := fmt.Sprintf("%s of %.200q from %s", r.Operation, r.Path, r.Address)
	switch {
	case w.ids[r.ID]:
		w.log.learn(r.Address)
		return ""
	case w.given == "":
		return "the step's token was used at Vault, though it never left custody: " + use
	case !w.log.isOurs(r.Address):
		return "the step's token was used at Vault from an address that is not this host's: " + use
	case r.Path == w.given && r.Operation == "read", isPreflight(r.Path, w.given):
		return ""
	}
	return "the step's token was used at Vault for what it is not bound to: " + use
}

// isPreflight returns whether path is what Vault's own command line asks before it
// reads given: of which kind the engine is.
func isPreflight(path, given string) bool {
	mount, _, _ := strings.Cut(given, "/")
	rest, ok := strings.CutPrefix(path, "sys/internal/ui/mounts/")
	return ok && (rest == given || rest == strings.Replace(given, mount+"/data/", mount+"/", 1))
}

// isOurs returns whether an address is one from which the broker was seen, or one of this
// host's: a sandbox's connections may take another than the broker's.
func (l *auditLog) isOurs(address string) bool {
	if slices.Contains(l.addresses, address) {
		return true
	}
	ip := net.ParseIP(address)
	all, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(all, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(ip)
	})
}

// learn remembers from where our own requests come.
func (l *auditLog) learn(address string) {
	if len(l.addresses) < maxAddresses && !slices.Contains(l.addresses, address) {
		l.addresses = append(l.addresses, address)
	}
}

func (w *watch) report(what string) {
	select {
	case w.out <- what:
	default: // as many wait to be heard already
	}
}

// made records a request of the broker's own.
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

// watch follows the uses of a token of g's; nil without an audit log.
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

// probe checks that the log is this Vault's, and that tokens can be distinguished in it.
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
			return errors.New("Vault does not write what it is asked to the file that CUSTODY_VAULT_AUDIT names: is it this Vault's audit log?")
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
