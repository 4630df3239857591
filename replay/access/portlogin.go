package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// A browser logs in to a port of a sandbox with a link that works once:
//
//	PortTicket, for a credential --> ticket --- PortLogin, at the port's host ---> cookie
//	                                   `------- ticketTime -------> gone
//
// The cookie is this credential for one port of one sandbox, in one tenant, and at that host only. It ends with the credential, with the sandbox, and
// after session.max; a link whose credential has ended by then makes none.
const (
	// PortLoginPath is the path of the link at the host of a port. Requests for it do not reach the sandbox.
	PortLoginPath = "/.well-known/custody-login"
	// PortCookie is the name of the cookie on a connection without TLS.
	PortCookie = "custody_port"

	ticketTime     = time.Minute
	maxTickets     = 4096 // a further one replaces the oldest
	maxTicketsOf   = 32   // of one credential
	ticketParam    = "ticket"
	portLoginRoute = "GET {port}-{run}" + PortLoginPath
)

// portAddress is a port of a sandbox, as the path values of a request name it.
type portAddress struct{ sandbox, port string }

func portOf(r *http.Request) portAddress { return portAddress{r.PathValue("run"), r.PathValue("port")} }

// portLogins are the logins to ports.
type portLogins struct {
	cookies sessions

	mu      sync.Mutex // guards tickets
	tickets map[digest]ticket
}

type ticket struct {
	credential
	until time.Time
}

// add returns a new ticket.
func (l *portLogins) add(c credential) (text string, until time.Time) {
	text, sum := newSecret(TicketPrefix)
	until = time.Now().Add(ticketTime)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tickets == nil {
		l.tickets = map[digest]ticket{}
	}
	l.tidy()
	l.evict(func(o ticket) bool { return o.key == c.key }, maxTicketsOf)
	l.evict(func(ticket) bool { return true }, maxTickets)
	l.tickets[sum] = ticket{c, until}
	return text, until
}

// take returns the credential of a ticket, which is then gone.
func (l *portLogins) take(text string) (credential, bool) {
	sum := digestOf(text)
	l.mu.Lock()
	t, ok := l.tickets[sum]
	delete(l.tickets, sum)
	l.mu.Unlock()
	return t.credential, ok && time.Now().Before(t.until) && t.stands()
}

// tidy drops tickets whose time is over. mu is held.
func (l *portLogins) tidy() {
	for sum, t := range l.tickets {
		if !time.Now().Before(t.until) {
			delete(l.tickets, sum)
		}
	}
}

// evict makes room for one more among those that of picks. mu is held.
func (l *portLogins) evict(of func(ticket) bool, limit int) {
	n, oldest := 0, digest{}
	for sum, t := range l.tickets {
		if of(t) {
			if n++; n == 1 || t.until.Before(l.tickets[oldest].until) {
				oldest = sum
			}
		}
	}
	if n >= limit {
		delete(l.tickets, oldest)
	}
}

// PortTicket returns the path and query with which a browser logs in to a port of a sandbox as the principal of a request, and until when. ctx is
// the request's, behind Guard. The login ends when lives, which has to be safe for concurrent use, returns false: when the sandbox has ended.
func (g *Gate) PortTicket(ctx context.Context, sandbox string, port int, lives func() bool) (path string, until time.Time, err error) {
	c, ok := ctx.Value(credentialKey{}).(credential)
	if !ok {
		return "", time.Time{}, errors.New("the request has no credential")
	}
	c.at = portAddress{sandbox, fmt.Sprint(port)}
	c.principal.Grants = []Grant{{c.principal.Tenant, c.principal.Role}}
	still := c.holds
	c.holds = func() bool { return lives() && (still == nil || still()) }
	text, until := g.auth.ports.add(c)
	return PortLoginPath + "?" + ticketParam + "=" + text, until, nil
}

// PortLogin answers the link of PortTicket. Its request has the path values run and port.
func (g *Gate) PortLogin(w http.ResponseWriter, r *http.Request) {
	q := newRequest(portView(r), portLoginRoute, Rule{Action: "login", Port: true}, g.tenant)
	cred, problem := g.portLogin(q, r)
	if problem != nil {
		g.refuser.refusePage(w, q, problem)
		return
	}
	if err := g.journal.allow(r.Context(), q.event); err != nil {
		g.warn(fmt.Sprintf("a login could not be recorded: %v", err))
		notRecorded().Write(w, r)
		return
	}
	for _, c := range portCookies(r) {
		g.auth.ports.cookies.end(c.Value)
	}
	id, s := g.auth.ports.cookies.open(cred)
	setCookie(w, r, PortCookie, id, time.Until(s.principal.Expires), http.SameSiteLaxMode) // strict ones are not sent after a link of Custody's page
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// portLogin makes the checks of PortLogin. A request that no person made, such as one for a preview of the link, leaves the ticket as it is.
func (g *Gate) portLogin(q *request, r *http.Request) (credential, *Problem) {
	if p := g.site.check(q); p != nil {
		return credential{}, p
	}
	if p := g.take("address " + network(q.from)); p != nil {
		return credential{}, p
	}
	if !navigates(r) || r.Header.Get("Sec-Purpose") != "" {
		return credential{}, notNavigated()
	}
	texts := r.URL.Query()[ticketParam]
	if len(texts) != 1 || !isSecret(texts[0], TicketPrefix) {
		return credential{}, badTicket()
	}
	c, ok := g.auth.ports.take(texts[0])
	if !ok || c.at != portOf(r) {
		return credential{}, badTicket()
	}
	p := c.principal
	q.event.Who, q.event.Via, q.event.Tenant, q.event.Role = p.Name, p.Via, forEvent(p.Tenant), string(p.Role)
	return c, nil
}

// navigates reports whether a browser makes the request to show its answer as a page of its own.
func navigates(r *http.Request) bool {
	only := func(name, value string) bool { return slices.Equal(r.Header.Values(name), []string{value}) }
	return r.Method == http.MethodGet && only("Sec-Fetch-Mode", "navigate") && only("Sec-Fetch-Dest", "document")
}

// workerHeader is in the requests with which browsers get the script of a service worker. It would see each later request to the port, the link of the
// next login included, and answer when the sandbox has ended.
const workerHeader = "Service-Worker"

// checkPortOrigin refuses a request with the cookie of a port that a page of another origin has the browser make: another sandbox's is of the same
// site. Such a page can only lead the browser to the port.
func checkPortOrigin(q *request) *Problem {
	scheme := "http"
	if q.TLS != nil {
		scheme = "https"
	}
	origins, sites := q.Header.Values("Origin"), q.Header.Values("Sec-Fetch-Site")
	own := slices.Equal(origins, []string{scheme + "://" + q.Host})
	switch {
	case q.Header.Get(workerHeader) != "":
		return noServiceWorker()
	case len(origins) > 0 && !own:
		return otherOrigin()
	case q.Header.Get("Upgrade") != "" && !own:
		return otherOrigin()
	case len(sites) == 0 && q.Header.Get("Upgrade") != "": // browsers that name the site in no request for a WebSocket
		return nil
	case slices.Equal(sites, []string{"same-origin"}), slices.Equal(sites, []string{"none"}):
		return nil
	case len(sites) == 1 && len(origins) == 0 && navigates(q.Request):
		return nil
	}
	return otherOrigin()
}
