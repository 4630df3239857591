package main

import (
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v3"
)

// door is the issuer's socket, which can be shut and opened again at the same address.
type door struct {
	handler http.Handler
	addr    string

	mu     sync.Mutex // guards server
	server *http.Server
}

func (d *door) open(l net.Listener) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.server = &http.Server{Handler: d.handler, ReadHeaderTimeout: 10 * time.Second}
	go d.server.Serve(l)
}

func (d *door) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.server.Close()
}

// controls returns the handler of the control address:
//
//	POST /rotate?alg=ES256&keep=1  another key; with keep the old ones stay published
//	POST /sign                     {"claims": {...}, "header": {...}} as a JWT signed by the current key
//	GET  /asked                    the number of requests for the public keys
//	POST /close  POST /open        the issuer's socket
func controls(p *provider, d *door) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /rotate", func(w http.ResponseWriter, r *http.Request) {
		p.keys.rotate(jose.SignatureAlgorithm(r.FormValue("alg")), r.FormValue("keep") != "")
	})
	mux.HandleFunc("POST /sign", func(w http.ResponseWriter, r *http.Request) { sign(p, w, r) })
	mux.HandleFunc("GET /asked", func(w http.ResponseWriter, r *http.Request) { answer(w, p.keys.count()) })
	mux.HandleFunc("POST /close", func(w http.ResponseWriter, r *http.Request) { d.close() })
	mux.HandleFunc("POST /open", func(w http.ResponseWriter, r *http.Request) {
		l, err := net.Listen("tcp", d.addr)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		d.open(l)
	})
	return mux
}

func sign(p *provider, w http.ResponseWriter, r *http.Request) {
	var want struct {
		Claims json.RawMessage           `json:"claims"`
		Header map[jose.HeaderKey]string `json:"header"`
	}
	err := json.NewDecoder(r.Body).Decode(&want)
	key := p.keys.current()
	o := (&jose.SignerOptions{}).WithType("JWT")
	for name, v := range want.Header {
		o.WithHeader(name, v)
	}
	if kid, ok := want.Header["kid"]; ok {
		key.KeyID = kid
	}
	var signer jose.Signer
	if err == nil {
		signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key}, o)
	}
	var jws *jose.JSONWebSignature
	if err == nil {
		jws, err = signer.Sign(want.Claims)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	text, _ := jws.CompactSerialize()
	answer(w, text)
}
