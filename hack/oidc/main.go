// Command oidc is an OpenID Connect provider for tests: Ory's fosite, on which Ory Hydra is
// built, with users and clients from a file and a login form. It supports only the authorization
// code flow with PKCE S256. Its first line of output has its addresses:
//
//	{"issuer": "http://127.0.0.1:40001", "control": "http://127.0.0.1:40002"}
//
// The control address offers what tests need beyond a provider's interface: key rotation, signed
// tokens with any claims, and outages. The process ends when its standard input closes.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"
)

// config is the content of the file given by -config.
type config struct {
	Listen  string        `json:"listen"` // default a free port of 127.0.0.1
	TokenS  int           `json:"token_seconds"`
	Clients []client      `json:"clients"`
	Users   []user        `json:"users"`
	life    time.Duration // of tokens
}

type client struct {
	ID        string   `json:"id"`
	Secret    string   `json:"secret"` // empty: a public client
	Redirects []string `json:"redirects"`
}

type user struct {
	Name     string         `json:"name"`
	Password string         `json:"password"`
	Claims   map[string]any `json:"claims"`
}

func main() {
	path := flag.String("config", "", "file with clients and users")
	flag.Parse()
	if err := run(*path); err != nil {
		log.Fatal(err)
	}
}

func run(path string) error {
	c, err := load(path)
	if err != nil {
		return err
	}
	front, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	control, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	p, err := newProvider(c, "http://"+front.Addr().String())
	if err != nil {
		return err
	}
	door := &door{handler: p.routes(), addr: front.Addr().String()}
	door.open(front)
	back := &http.Server{Handler: controls(p, door), ReadHeaderTimeout: 10 * time.Second}
	go back.Serve(control)
	fmt.Printf("{\"issuer\": %q, \"control\": %q}\n", p.issuer, "http://"+control.Addr().String())
	io.Copy(io.Discard, os.Stdin)
	door.close()
	return back.Shutdown(context.Background())
}

func load(path string) (config, error) {
	c := config{Listen: "127.0.0.1:0", TokenS: 300}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	c.life = time.Duration(c.TokenS) * time.Second
	return c, err
}
