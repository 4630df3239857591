package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/custody-project/custody/replay/access"
)

// portRoute is the name of requests to ports by host name in the access log.
const portRoute = "HTTP {port}-{run}"

// The bounds of what a sandbox answers. A WebSocket has no limit of time but those of a tunnel.
const (
	portHeader     = 64 << 10         // bytes
	portHeaderTime = 10 * time.Minute // until the headers of the answer have arrived
	portStall      = time.Minute      // for the client to send or take the next part of a body
)

// portProxy serves HTTP and WebSocket of the ports of sandboxes, each below a host name of its own: what a sandbox answers is hostile, and a
// browser must not take it for the page.
type portProxy struct {
	*portsHandler
	portOf func(host string) (port int, sandbox string, ok bool) // nil: there are no such names
}

// before returns a handler that answers requests to the hosts of ports, and leaves all others to next.
func (p *portProxy) before(next http.Handler, s *Server, gate Gate) http.Handler {
	if p.portOf == nil {
		return next
	}
	rt := &route{method: "HTTP", rule: access.Rule{Role: access.Operator, Action: "follow", Port: true}}
	guarded := gate.Guard(portRoute, rt.rule, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := whoIs(r, rt.rule)
		if err == nil {
			err = p.serve(w, &request{Request: r, route: rt, who: who})
		}
		if err != nil {
			s.fail(w, r, err)
		}
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		port, sandbox, ok := p.portOf(r.Host)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		r.SetPathValue("run", sandbox)
		r.SetPathValue("port", strconv.Itoa(port))
		if r.URL.Path == access.PortLoginPath {
			gate.PortLogin(w, r)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// serve passes a request on to the port that its host names, over a connection of its own.
func (p *portProxy) serve(w http.ResponseWriter, r *request) error {
	if r.Method == http.MethodConnect {
		return bad("send requests for resources of the port", "the port is not a proxy")
	}
	s, port, err := p.target(r)
	if err != nil {
		return err
	}
	tunnel, end, err := p.dial(r, s, port, "http")
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := p.until(r)
	defer cancel()
	client := &portClient{ResponseWriter: w, rc: http.NewResponseController(w), ctx: ctx}
	if err := errors.Join(client.rc.SetReadDeadline(time.Time{}), client.rc.SetWriteDeadline(time.Time{})); err != nil {
		return err
	}
	body := &portBody{rc: client.rc}
	transport := &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return tunnel, nil },
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: portHeader, ResponseHeaderTimeout: portHeaderTime,
	}
	proxy := &httputil.ReverseProxy{
		Transport: transport, Rewrite: func(pr *httputil.ProxyRequest) { toSandbox(pr, port) }, ErrorLog: log.New(io.Discard, "", 0),
		ModifyResponse: func(res *http.Response) error {
			if err := fromSandbox(res); err != nil {
				return err
			}
			clear(w.Header()) // the headers of the page and the API are not those of this host
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) {
			problem := unanswered(err, port, body)
			if !body.stalled.Load() {
				problem.Write(client, r)
			} else if deadline(client.rc, slowest) == nil { // the stalled body has ended ctx
				problem.Write(w, r)
			}
		},
	}
	out := r.Request.WithContext(ctx)
	if out.Body != nil && out.Body != http.NoBody {
		body.ReadCloser = out.Body
		out.Body = body
	}
	defer deadline(client.rc, slowest) // for what ends the answer
	proxy.ServeHTTP(client, out)
	return nil
}

// unanswered returns the response to a request that has no answer of the sandbox.
func unanswered(err error, port int, body *portBody) *access.Problem {
	var timeout net.Error
	see := "see the output of the process that listens there"
	switch {
	case body.stalled.Load():
		return access.NewProblem(http.StatusRequestTimeout, "stalled", fmt.Sprintf("nothing of the request's body came for %v", portStall), "send it without such pauses")
	case strings.Contains(err.Error(), "response headers exceeded"): // of net/http, which has no error value for it
		return access.NewProblem(http.StatusBadGateway, "long-headers", fmt.Sprintf("the headers of the answer of port %d are longer than %d KiB", port, portHeader>>10), see)
	case errors.As(err, &timeout) && timeout.Timeout():
		return access.NewProblem(http.StatusGatewayTimeout, "no-answer", fmt.Sprintf("port %d of the sandbox sent no answer for %v", port, portHeaderTime), see)
	}
	return access.NewProblem(http.StatusBadGateway, "bad-answer", fmt.Sprintf("the server on port %d of the sandbox sent no answer in HTTP", port), see)
}

// toSandbox makes the request that the sandbox gets. It has the host name that the client used, so that redirects and checks of
// Origin work, and no address of the client. The gate has removed the credential.
func toSandbox(pr *httputil.ProxyRequest, port int) {
	pr.Out.URL.Scheme, pr.Out.URL.Host = "http", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery // with what ReverseProxy drops because parsers differ about it: no one else parses it
	pr.Out.Header.Set("X-Forwarded-Host", pr.In.Host)
	pr.Out.Header.Set("X-Forwarded-Proto", "http")
	if pr.In.TLS != nil {
		pr.Out.Header.Set("X-Forwarded-Proto", "https")
	}
	if !webSocket(pr.Out.Header) {
		pr.Out.Header.Del("Connection")
		pr.Out.Header.Del("Upgrade")
	}
	if _, ok := pr.Out.Header["User-Agent"]; !ok {
		pr.Out.Header.Set("User-Agent", "") // none, in place of Go's
	}
}

func webSocket(h http.Header) bool { return strings.EqualFold(h.Get("Upgrade"), "websocket") }

// errSwitched is an answer 101 to a request that is none for a WebSocket. Passed on, it would make a proxy between the client and this server pass
// bytes of the sandbox as answers to other requests.
var errSwitched = errors.New("the sandbox switches protocols without being asked")

// fromSandbox removes from an answer what would have an effect in a browser beyond the sandbox's own host, or after the end of the sandbox.
func fromSandbox(res *http.Response) error {
	if res.StatusCode == http.StatusSwitchingProtocols && !webSocket(res.Request.Header) {
		return errSwitched
	}
	for _, name := range []string{
		"Strict-Transport-Security",               // how the domain is reached is for Custody to say
		"Alt-Svc",                                 // would send the browser to another server than this one
		"Clear-Site-Data",                         // removes cookies of the whole registrable domain
		"Nel", "Report-To", "Reporting-Endpoints", // have the browser report its requests elsewhere, for as long as the sandbox says
		"Public-Key-Pins", "Expect-Ct",
	} {
		res.Header.Del(name)
	}
	var cookies []string
	for _, c := range res.Header["Set-Cookie"] {
		if !access.OwnCookie(c) {
			cookies = append(cookies, hostOnly(c))
		}
	}
	res.Header.Del("Set-Cookie")
	if len(cookies) > 0 {
		res.Header["Set-Cookie"] = cookies
	}
	return nil
}

// hostOnly returns a Set-Cookie header without the attribute Domain, with which browsers would send the cookie to other sandboxes, too.
func hostOnly(cookie string) string {
	parts := strings.Split(cookie, ";")
	kept := parts[:1]
	for _, attribute := range parts[1:] {
		if name, _, _ := strings.Cut(attribute, "="); !strings.EqualFold(strings.TrimSpace(name), "Domain") {
			kept = append(kept, attribute)
		}
	}
	return strings.Join(kept, ";")
}

// portClient is the client of a port. It has portStall to take each part of an answer.
type portClient struct {
	http.ResponseWriter
	rc  *http.ResponseController
	ctx context.Context // of the request
}

// Unwrap is for http.ResponseController.
func (c *portClient) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// WriteHeader drops informational answers: there is no bound on how many a sandbox sends.
func (c *portClient) WriteHeader(status int) {
	if status >= 200 {
		c.ResponseWriter.WriteHeader(status)
	}
}

// Write implements io.Writer.
func (c *portClient) Write(b []byte) (n int, err error) {
	err = c.patient(func() error {
		n, err = c.ResponseWriter.Write(b)
		return err
	})
	return n, err
}

// FlushError is for http.ResponseController.
func (c *portClient) FlushError() error { return c.patient(c.rc.Flush) }

// patient calls write with a deadline. The gate cuts off a client whose credential was withdrawn: this must not give it more time.
func (c *portClient) patient(write func() error) error {
	if err := context.Cause(c.ctx); err != nil {
		return err
	}
	if err := deadline(c.rc, portStall); err != nil {
		return err
	}
	if err := write(); err != nil {
		return err
	}
	return deadline(c.rc, 0)
}

// Hijack is for http.ResponseController.
func (c *portClient) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := c.rc.Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &portSocket{conn}, rw, nil
}

// portSocket is the connection of a WebSocket's client.
type portSocket struct{ net.Conn }

// Write implements net.Conn.
func (s *portSocket) Write(b []byte) (int, error) {
	if err := s.SetWriteDeadline(time.Now().Add(portStall)); err != nil {
		return 0, err
	}
	return s.Conn.Write(b)
}

// portBody is the body of a request. The client has portStall to send each part of it.
type portBody struct {
	io.ReadCloser
	rc      *http.ResponseController
	stalled atomic.Bool // the client did not
}

// Read implements io.Reader.
func (b *portBody) Read(p []byte) (int, error) {
	if err := b.rc.SetReadDeadline(time.Now().Add(portStall)); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF: // the server reads on to notice that the client has gone
		b.rc.SetReadDeadline(time.Time{})
	case errors.Is(err, os.ErrDeadlineExceeded): // the deadline stays: the server would wait for the rest before it answers
		b.stalled.Store(true)
	}
	return n, err
}
