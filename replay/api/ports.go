package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/fleet"
	"github.com/custody-project/custody/internal/splice"
	"github.com/custody-project/custody/replay/access"
)

// tunnelProtocol is what a connection is upgraded to: the bytes of a TCP connection to a port of a sandbox. No page can have a browser ask for it.
const tunnelProtocol = "custody-tcp"

// portsHandler serves the TCP ports of sandboxes.
type portsHandler struct {
	sandboxes *sandboxesHandler
	tunnels   turnstile                             // connections to ports
	name      func(port int, sandbox string) string // its host name, "" if it has none; nil: none has
	gate      Gate
}

// maxTunnels bounds the connections to ports, and maxTunnelsOf those of one principal.
const maxTunnels, maxTunnelsOf = 4096, 512

func (h *portsHandler) list(w http.ResponseWriter, r *request) error {
	s, err := h.sandboxes.find(r)
	if err != nil {
		return err
	}
	if err := live(r.Context(), s); err != nil {
		return err
	}
	ports, err := fleet.PortsOf(s).List(r.Context())
	if err != nil {
		return fleetProblem(err)
	}
	list := []client.Port{}
	for _, p := range ports {
		list = append(list, client.Port{Port: p, URL: h.url(r, p, s.ID)})
	}
	return answer(w, struct {
		Ports []client.Port `json:"ports"`
	}{list})
}

// url returns the address of a port by its host name, on the port of this server that the request uses; "" if there is none.
func (h *portsHandler) url(r *request, port int, sandbox string) string {
	if h.name == nil {
		return ""
	}
	host := h.name(port, sandbox)
	if host == "" {
		return ""
	}
	u := url.URL{Scheme: "http", Host: host, Path: "/"}
	if r.TLS != nil {
		u.Scheme = "https"
	}
	if _, own, err := net.SplitHostPort(r.Host); err == nil && own != "" {
		u.Host = net.JoinHostPort(host, own)
	}
	return u.String()
}

// login answers with a link that logs a browser in to a port.
func (h *portsHandler) login(w http.ResponseWriter, r *request) error {
	s, port, err := h.target(r)
	if err != nil {
		return err
	}
	if port < 1 || port > 65535 {
		return bad("give a number, 1 to 65535", "there is no port %d", port)
	}
	if over(s) {
		return errOver(s)
	}
	at := h.url(r, port, s.ID)
	if at == "" {
		return errNotHere("host names for ports of sandboxes")
	}
	if r.TLS == nil && !strings.HasSuffix(h.name(port, s.ID), ".localhost") { // only to such hosts browsers send Sec-Fetch-Site
		return access.NewProblem(http.StatusConflict, "port-login", "browsers can log in to ports with TLS, or where serve.port_domain is below localhost", "give serve.cert and serve.key in host.yaml, or port_domain: sandboxes.localhost")
	}
	path, until, err := h.gate.PortTicket(r.Context(), s.ID, port, func() bool { return !over(s) })
	if err != nil {
		return err
	}
	return answerWith(w, http.StatusCreated, client.PortLogin{URL: strings.TrimSuffix(at, "/") + path, Expires: until.UTC()})
}

// over reports whether a sandbox has ended, or is about to.
func over(s *fleet.Sandbox) bool {
	state := s.Info().State
	return state == fleet.Ending || state == fleet.Ended
}

// connect makes the connection of the request one to a port of the sandbox.
func (h *portsHandler) connect(w http.ResponseWriter, r *request) error {
	s, port, err := h.target(r)
	if err != nil {
		return err
	}
	if r.ProtoMajor != 1 || !strings.EqualFold(r.Header.Get("Upgrade"), tunnelProtocol) {
		w.Header().Set("Upgrade", tunnelProtocol)
		return access.NewProblem(http.StatusUpgradeRequired, "upgrade", "this address is a TCP connection", "use HTTP/1.1 with the headers Connection: Upgrade and Upgrade: "+tunnelProtocol)
	}
	tunnel, end, err := h.dial(r, s, port, "tunnel")
	if err != nil {
		return err
	}
	defer end()
	caller, err := upgraded(w)
	if err != nil || caller == nil {
		return err
	}
	ctx, cancel := h.until(r)
	defer cancel()
	splice.Join(ctx, caller, tunnel, 0, &splice.Traffic{}) // the sandbox records how it ends
	return nil
}

// target returns the sandbox and the port that the path or the host of a request names.
func (h *portsHandler) target(r *request) (s *fleet.Sandbox, port int, err error) {
	if s, err = h.sandboxes.find(r); err != nil {
		return nil, 0, err
	}
	if _, err := fmt.Sscan(r.PathValue("port"), &port); err != nil || fmt.Sprint(port) != r.PathValue("port") {
		return nil, 0, bad("give a number, 1 to 65535", "%.20q is no port", r.PathValue("port"))
	}
	return s, port, nil
}

// dial connects to a port; via is as in audit.Inbound. The caller calls end, which closes the connection.
func (h *portsHandler) dial(r *request, s *fleet.Sandbox, port int, via string) (_ *fleet.Tunnel, end func(), err error) {
	leave, err := h.tunnels.enter(r.who.Tenant+"\x00"+r.who.Name, "connections to ports")
	if err != nil {
		return nil, nil, err
	}
	var tunnel *fleet.Tunnel
	if err = live(r.Context(), s); err == nil {
		tunnel, err = fleet.PortsOf(s).Dial(r.Context(), port, r.who.Name, via)
	}
	if err != nil {
		leave()
		return nil, nil, portProblem(err, port)
	}
	return tunnel, func() { tunnel.Close(); leave() }, nil
}

// portProblem returns the response to an error of a connection to a port.
func portProblem(err error, port int) error {
	if errors.Is(err, fleet.ErrNotListening) {
		return access.NewProblem(http.StatusBadGateway, "not-listening", fmt.Sprintf("nothing listens on port %d of the sandbox", port),
			"start a server on 127.0.0.1, ::1 or all addresses; GET ports of the sandbox lists what listens")
	}
	return fleetProblem(err)
}

// until returns the context of a connection: it ends with the credential of the request, with the request's, and with the server.
func (h *portsHandler) until(r *request) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancel(r.Context())
	expire := func() {}
	if !r.who.Expires.IsZero() {
		ctx, expire = context.WithDeadline(ctx, r.who.Expires)
	}
	go func() {
		select {
		case <-h.sandboxes.ended:
			end()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { expire(); end() }
}

// hijacked is the connection of a client, with what the server has read ahead of it.
type hijacked struct {
	net.Conn
	read *bufio.Reader
}

// Read implements io.Reader. The server's reader would end the context of the request with the first end of file, which is that of one direction.
func (c *hijacked) Read(b []byte) (int, error) {
	if c.read.Buffered() > 0 {
		return c.read.Read(b)
	}
	return c.Conn.Read(b)
}

// CloseWrite implements splice.Conn.
func (c *hijacked) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// upgraded answers that the protocol is switched, and takes over the connection. It returns nil if the client has gone.
func upgraded(w http.ResponseWriter) (*hijacked, error) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	err = errors.Join(conn.SetDeadline(time.Now().Add(slowest)), write(conn, []byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+tunnelProtocol+"\r\n\r\n")), conn.SetDeadline(time.Time{}))
	if err != nil {
		conn.Close()
		return nil, nil
	}
	return &hijacked{conn, rw.Reader}, nil
}
