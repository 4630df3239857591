package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/custody-project/custody/audit"
)

// Rule is what a route asks for.
type Rule struct {
	Role   Role
	Action string // of the access event: view, follow, search, verify, export, report, note, login, logout or manage
	// Public: anyone may, and nothing is recorded. Only the host, the origin and the rate are checked.
	Public bool
	// Port: the request is one to a port of a sandbox, which its host names (Config.PortHost). The handler gets it without the credential. The query
	// and the cookies are the sandbox's, except for PortCookie.
	Port bool

	anyTenant bool // any principal, in any tenant: for questions about oneself
	foreign   bool // another site may send a browser here
}

// Gate authorizes every request. Its methods are safe for concurrent use.
type Gate struct {
	site    site
	auth    *authenticator
	rates   *limits // of principals, and of addresses at public routes
	journal *journal
	refuser *refuser
	live    live
	tenant  string // of the host
	warn    func(string)

	stop context.CancelFunc
	done sync.WaitGroup // watch
}

// Options are what a Gate is made of.
type Options struct {
	Config Config
	Tokens *Tokens
	Tenant string // of the host. "" is what belongs to none
	// Local returns the tenants in which the printed link grants a role: those that this host recorded runs for. The
	// page begins with the first. nil: Tenant alone.
	Local    func(ctx context.Context) []string
	Recorder Recorder
	LinkFor  time.Duration // how long a one-time token is good; 0: ten minutes
	Warn     func(string)  // if set, is called with non-fatal problems
}

// New returns a Gate. Close it: it has a goroutine that cuts off what was withdrawn.
func New(o Options) (*Gate, error) {
	if err := o.Config.Check(); err != nil {
		return nil, err
	}
	if o.Tokens == nil || o.Recorder == nil {
		return nil, errors.New("a gate needs tokens and a recorder")
	}
	c := o.Config.WithDefaults()
	g := &Gate{
		site:  site{known: c.known(), names: len(c.Names), isPort: c.isPort, origin: http.NewCrossOriginProtection()},
		auth:  &authenticator{tokens: o.Tokens, local: o.Local, role: Role(c.Local)},
		rates: newLimits(rate.Limit(c.Rate.PerSecond), c.Rate.Burst), journal: &journal{to: o.Recorder},
		tenant: o.Tenant, warn: o.Warn,
	}
	g.refuser = &refuser{g.journal, newLimits(failedEvery, failedBurst)}
	g.auth.sessions.max, g.auth.sessions.idle = c.Session.Max, c.Session.Idle
	g.auth.ports.cookies.max, g.auth.ports.cookies.idle = c.Session.Max, c.Session.Max
	g.auth.once.lasts = o.LinkFor
	if g.auth.local == nil {
		g.auth.local = func(context.Context) []string { return []string{o.Tenant} }
	}
	if g.warn == nil {
		g.warn = func(string) {}
	}
	if c.OIDC != nil {
		iss, err := newIssuer(*c.OIDC)
		if err != nil {
			return nil, err
		}
		g.auth.issuer = iss
	}
	ctx, cancel := context.WithCancel(context.Background())
	g.stop = cancel
	g.done.Go(func() { g.watch(ctx) })
	return g, nil
}

// Tokens are those that the gate accepts.
func (g *Gate) Tokens() *Tokens { return g.auth.tokens }

// Once returns a new one-time token, good once, for Options.LinkFor, from this machine. false: the
// configuration wants none, or the server has no name by which this machine's loopback reaches it.
func (g *Gate) Once() (string, bool) {
	known := g.site.known
	loopback := known["localhost"] || known["127.0.0.1"] || known["::1"]
	if g.auth.role == LocalNone || !loopback {
		return "", false
	}
	return g.auth.once.add(), true
}

// Close writes what was counted. It is called once no request is being answered any more.
func (g *Gate) Close() error {
	g.stop()
	g.done.Wait()
	return g.journal.flush(context.Background())
}

// How often the watch checks credentials. A withdrawn credential ends its requests within a second.
const (
	watchEvery = 400 * time.Millisecond
	flushEvery = time.Minute
)

func (g *Gate) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	flushed := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		g.live.cut()
		if time.Since(flushed) < flushEvery {
			continue
		}
		flushed = time.Now()
		g.auth.sessions.sweep()
		g.auth.ports.cookies.sweep()
		if err := g.journal.flush(ctx); err != nil {
			g.warn(fmt.Sprintf("refusals could not be recorded yet: %v", err))
		}
		if err := g.auth.tokens.note(ctx); err != nil {
			g.warn(fmt.Sprintf("when tokens were used could not be noted: %v", err))
		}
	}
}

// request is a request that the gate checks.
type request struct {
	*http.Request
	rule   Rule
	from   netip.Addr
	event  audit.Access
	cookie bool // the credential came in a cookie
}

// Guard returns next behind the checks that the package's text lists. route is the pattern of
// the mux, as access events name it.
func (g *Gate) Guard(route string, rule Rule, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		checked := r
		if rule.Port {
			checked, r = portView(r), forSandbox(r)
		}
		q := newRequest(checked, route, rule, g.tenant)
		cred, problem := g.admit(q)
		if problem != nil {
			g.refuser.refuse(w, q, problem)
			return
		}
		if rule.Public {
			next.ServeHTTP(w, r)
			return
		}
		if !rule.anyTenant {
			if err := g.journal.allow(r.Context(), q.event); err != nil {
				g.warn(fmt.Sprintf("an access could not be recorded: %v", err))
				notRecorded().Write(w, r)
				return
			}
		}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		r, leave := g.live.enter(w, r, cred)
		defer leave()
		next.ServeHTTP(w, r.WithContext(cred.into(r.Context())))
	})
}

// maxRecorded is as much as an event keeps of a query or a run's name, in bytes.
const maxRecorded = 4096

// newRequest describes a request to route. Its event is about the host's tenant until the principal's is known:
// failed logins are the host's own matter.
func newRequest(r *http.Request, route string, rule Rule, tenant string) *request {
	q := &request{Request: r, rule: rule, from: remote(r.RemoteAddr)}
	q.event = audit.Access{
		Tenant: tenant,
		Action: rule.Action, Route: route, Verdict: audit.Allow,
		About: audit.Text(hide(clip(r.PathValue("run")))), Query: audit.Text(hide(clip(plainQuery(asked(r))))),
	}
	if q.from.IsValid() {
		q.event.Remote = q.from.String()
	}
	return q
}

// asked returns what a request accesses beside the run: its query, and the record, resource or port in its path.
func asked(r *http.Request) string {
	var parts []string
	for _, name := range []string{"seq", "id", "port"} {
		if v := r.PathValue(name); v != "" {
			parts = append(parts, name+"="+url.QueryEscape(v))
		}
	}
	if r.URL.RawQuery != "" {
		parts = append(parts, r.URL.RawQuery)
	}
	return strings.Join(parts, "&")
}

// plainQuery returns a query as people read it, and as the redactor finds secrets in it: only & and % are
// escaped. An invalid query is returned unchanged.
func plainQuery(raw string) string {
	pairs := strings.Split(raw, "&")
	for i, pair := range pairs {
		text, err := url.QueryUnescape(pair)
		if err != nil {
			return raw
		}
		pairs[i] = escapePair.Replace(text)
	}
	return strings.Join(pairs, "&")
}

var escapePair = strings.NewReplacer("%", "%25", "&", "%26")

func clip(s string) string {
	if len(s) > maxRecorded {
		return s[:maxRecorded]
	}
	return s
}

// admit makes all checks that come before the access event.
func (g *Gate) admit(q *request) (credential, *Problem) {
	if p := g.site.check(q); p != nil {
		return credential{}, p
	}
	if q.rule.Public {
		return credential{}, g.take("address " + network(q.from))
	}
	asked, given, problem := askedTenant(q.Request)
	if given {
		q.event.Tenant = forEvent(asked)
	}
	cred, p := g.auth.identify(q)
	if p != nil && isPreflight(q) {
		return credential{}, noCORS()
	}
	if p != nil && q.rule.Port && p.reason() == reasonNobody {
		return credential{}, nobodyAtPort()
	}
	if p != nil {
		return credential{}, p
	}
	q.event.Who, q.event.Via = cred.principal.Name, cred.principal.Via
	if p := checkCookie(q); p != nil {
		return credential{}, p
	}
	if problem != nil {
		return credential{}, problem
	}
	if p := place(q, &cred, asked, given); p != nil {
		return credential{}, p
	}
	return cred, g.take(cred.bucket())
}

// Host answers only requests that give a name of this server's. It is for pages that need no Guard.
func (g *Gate) Host(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := g.site.checkHost(r); p != nil {
			g.refuser.refuse(w, newRequest(r, "", Rule{Action: "view"}, g.tenant), p)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// place finds the tenant of the request, and checks that the role there is sufficient.
func place(q *request, cred *credential, asked string, given bool) *Problem {
	p := &cred.principal
	switch {
	case len(p.Grants) == 0:
		return noGrant()
	case given:
		in, ok := p.in(asked)
		if !ok {
			return notGranted()
		}
		*p = in
	case len(p.Grants) == 1:
		*p, _ = p.in(p.Grants[0].Tenant)
	case q.rule.anyTenant:
	default:
		return whichTenant(p.Grants)
	}
	q.event.Tenant, q.event.Role = forEvent(p.Tenant), string(p.Role)
	if !q.rule.anyTenant && !p.Role.May(q.rule.Role) {
		return roleTooLow(p.Role, q.rule.Role)
	}
	return nil
}

func (g *Gate) take(key string) *Problem {
	wait, ok := g.rates.take(key)
	if ok {
		return nil
	}
	p := NewProblem(http.StatusTooManyRequests, "rate", "there were too many requests", "wait as long as Retry-After states")
	p.After = wait
	return p
}

// askedTenant returns the tenant that a request names by ?tenant= or the header Custody-Tenant.
// Several values in one of them, or different ones in the two, are an error.
func askedTenant(r *http.Request) (name string, given bool, _ *Problem) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return "", false, NewProblem(http.StatusBadRequest, "query", "the query cannot be read", "encode each name and value by itself, and put & between them")
	}
	all := append(query["tenant"], r.Header.Values(tenantHeader)...)
	if len(query["tenant"]) > 1 || len(r.Header.Values(tenantHeader)) > 1 || len(all) == 2 && all[0] != all[1] {
		return "", false, NewProblem(http.StatusBadRequest, "tenants", "the request names several tenants", "name one, by ?tenant= or by the header Custody-Tenant")
	}
	if len(all) == 0 {
		return "", false, nil
	}
	return all[0], true, nil
}

// forEvent returns a tenant's name for the record. An invalid name is quoted, so that it is never taken for a tenant.
func forEvent(name string) string {
	if validTenant(name) {
		return name
	}
	return fmt.Sprintf("%+q", clip(name)[:min(len(name), 80)])
}
