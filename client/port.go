package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"time"
)

// tunnelProtocol is the protocol to which a connection to the service is upgraded: the bytes of a TCP connection.
const tunnelProtocol = "custody-tcp"

// Port is a TCP port of a sandbox on which a process listens.
type Port struct {
	Port int    `json:"port"`
	URL  string `json:"url,omitempty"` // of HTTP by its host name; empty: the service has no names for ports
}

// Ports returns the TCP ports of the sandbox on which processes listen, and that Dial can reach.
func (b *Box) Ports(ctx context.Context) ([]Port, error) {
	var list struct{ Ports []Port }
	err := repeat(ctx, func() error { return b.client.call(ctx, http.MethodGet, b.path("ports"), nil, nil, &list, nil) })
	return list.Ports, err
}

// PortLogin is a link with which a browser logs in to a port of a sandbox.
type PortLogin struct {
	URL     string    `json:"url"` // works once
	Expires time.Time `json:"expires"`
}

// LogIn returns a link that opens HTTP of a port by its host name in a browser, as the user of the client. The login ends with the client's
// token and with the sandbox.
func (b *Box) LogIn(ctx context.Context, port int) (PortLogin, error) {
	var link PortLogin
	err := b.client.call(ctx, http.MethodPost, b.path("ports", strconv.Itoa(port), "login"), nil, nil, &link, nil)
	return link, err
}

// Dial connects to a TCP port of the sandbox, on its loopback interface, and starts the sandbox if that is only promised. The connection has a
// method CloseWrite, as that of TCP has. A Problem with the status 502 means that nothing listens there. ctx bounds only the dial.
//
//	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx, 8080) }}}
func (b *Box) Dial(ctx context.Context, port int) (net.Conn, error) {
	straight, err := b.client.http1()
	if err != nil {
		return nil, err
	}
	var below net.Conn
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { below = i.Conn }})
	header := http.Header{"Connection": {"Upgrade"}, "Upgrade": {tunnelProtocol}}
	res, err := straight.open(traced, http.MethodGet, b.path("ports", strconv.Itoa(port)), nil, nil, header)
	if err != nil {
		return nil, err
	}
	body, ok := res.Body.(io.ReadWriteCloser)
	if res.StatusCode != http.StatusSwitchingProtocols || !ok || below == nil {
		res.Body.Close()
		return nil, fmt.Errorf("the service answered %s: does a proxy before it pass on upgrades to %s?", res.Status, tunnelProtocol)
	}
	return &conn{below, body}, nil
}

// http1 returns a client that does not use HTTP/2, which has no upgrades.
func (c *Client) http1() (*Client, error) {
	from := c.HTTP.Transport
	if from == nil {
		from = http.DefaultTransport
	}
	t, ok := from.(*http.Transport)
	if !ok {
		return nil, errors.New("the connection to a port needs an http.Transport: set Client.HTTP.Transport to one")
	}
	t = t.Clone()
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	t.ForceAttemptHTTP2, t.TLSNextProto, t.DisableKeepAlives = false, map[string]func(string, *tls.Conn) http.RoundTripper{}, true
	if t.TLSClientConfig != nil { // a clone, except for its lists
		t.TLSClientConfig.NextProtos = slices.DeleteFunc(slices.Clone(t.TLSClientConfig.NextProtos), func(p string) bool { return p == "h2" })
	}
	straight := *c
	straight.HTTP = &http.Client{Transport: t, CheckRedirect: c.HTTP.CheckRedirect, Jar: c.HTTP.Jar}
	return &straight, nil
}

// conn is a connection to a port, over the connection to the service.
type conn struct {
	net.Conn
	read io.Reader // has what came with the answer
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) { return c.read.Read(b) }

// CloseWrite ends what is sent; reads go on.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
