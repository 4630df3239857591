package access

import (
	"net/http"
	"sync"
	"time"
)

// sessions are those of browsers. They are in memory only: a restart ends them all.
//
//	login --> alive --- logout, the token's removal, its role or tenant changed ---> gone
//	            |------ session.max since login, or the credential's own end ------> gone
//	            `------ session.idle without a request ----------------------------> gone
//
// A login always makes a new id: what a browser sends before is looked at only to end it.
type sessions struct {
	max, idle time.Duration

	mu    sync.Mutex // guards the fields below
	alive map[digest]*session
}

// session is one of them. All but seen stays as it was made.
type session struct {
	credential
	sum  digest
	seen time.Time
}

// Limits of concurrent sessions. A further one replaces the least recently used.
const (
	maxSessions    = 4096
	maxOfPrincipal = 32
)

// open makes a session for a credential and returns its id, which is not kept.
func (s *sessions) open(c credential) (string, *session) {
	id, sum := newSecret("")
	now := time.Now()
	end := now.Add(s.max)
	if e := c.principal.Expires; e.IsZero() || end.Before(e) {
		c.principal.Expires = end
	}
	made := &session{credential: c, sum: sum, seen: now}
	still := c.holds
	made.holds = func() bool { return s.has(sum) && (still == nil || still()) }

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alive == nil {
		s.alive = map[digest]*session{}
	}
	s.evict(func(o *session) bool { return o.key == c.key }, maxOfPrincipal)
	s.evict(func(*session) bool { return true }, maxSessions)
	s.alive[sum] = made
	return id, made
}

// evict makes room for one more among those that of picks. mu is held.
func (s *sessions) evict(of func(*session) bool, limit int) {
	n, oldest := 0, (*session)(nil)
	for _, o := range s.alive {
		if of(o) {
			n++
			if oldest == nil || o.seen.Before(oldest.seen) {
				oldest = o
			}
		}
	}
	if n >= limit {
		delete(s.alive, oldest.sum)
	}
}

// find returns the session with this id, and notes that it was seen.
func (s *sessions) find(id string) (credential, bool) {
	if !isSecret(id, "") {
		return credential{}, false
	}
	sum := digestOf(id)
	s.mu.Lock()
	found, ok := s.alive[sum]
	ok = ok && s.live(found)
	if ok {
		found.seen = time.Now()
	}
	s.mu.Unlock()
	if !ok || !found.holds() {
		return credential{}, false
	}
	return found.credential, true
}

// has reports whether a session is still there.
func (s *sessions) has(sum digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.alive[sum]
	return ok && s.live(found)
}

// live reports whether its time is not over. mu is held.
func (s *sessions) live(o *session) bool {
	now := time.Now()
	return now.Before(o.principal.Expires) && now.Before(o.seen.Add(s.idle))
}

// end ends the session with this id, if there is one.
func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.alive, digestOf(id))
}

// sweep drops those that are over.
func (s *sessions) sweep() {
	var all []*session
	s.mu.Lock()
	for _, o := range s.alive {
		all = append(all, o)
	}
	s.mu.Unlock()
	for _, o := range all {
		if !o.holds() {
			s.mu.Lock()
			delete(s.alive, o.sum)
			s.mu.Unlock()
		}
	}
}

// CookieName is the session's cookie on a connection without TLS.
const CookieName = "custody_session"

// hostPrefix keeps other hosts of a domain from setting a cookie (RFC 6265bis, section 4.1.3.2). It needs TLS.
const hostPrefix = "__Host-"

func cookieName(r *http.Request, name string) string {
	if r.TLS != nil {
		return hostPrefix + name
	}
	return name
}

// setCookie gives the browser a cookie that no script can read, for age; age below 0 takes it away.
func setCookie(w http.ResponseWriter, r *http.Request, name, value string, age time.Duration, site http.SameSite) {
	seconds := int(age.Seconds())
	if age < 0 {
		seconds = -1
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r, name), Value: value, Path: "/", MaxAge: seconds,
		HttpOnly: true, Secure: r.TLS != nil, SameSite: site,
	})
}
