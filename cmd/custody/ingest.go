//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/ship"
	"github.com/custody-project/custody/store"
	"golang.org/x/mod/sumdb/note"
)

type ingestCmd struct {
	NATS    string   `name:"nats" placeholder:"URL" help:"The NATS servers (default: host.yaml's transport)."`
	Creds   string   `type:"existingfile" help:"File with NATS credentials (JWT)."`
	NKey    string   `name:"nkey" type:"existingfile" help:"File with a NATS NKey seed."`
	CA      string   `name:"ca" type:"existingfile" help:"PEM file with the CAs that may sign NATS's certificate."`
	Cert    string   `type:"existingfile" help:"Client certificate for NATS."`
	CertKey string   `type:"existingfile" help:"Its key."`
	Monitor string   `placeholder:"URL" help:"The servers' monitoring endpoint, to check sync_interval."`
	Key     []string `placeholder:"KEY|FILE" help:"Accept only segments that one of these public keys signed."`
	Metrics string   `placeholder:"ADDRESS" help:"Serve Prometheus metrics there."`
}

func (c ingestCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	if err := a.service(h, "ingest"); err != nil {
		return err
	}
	config, err := c.config(h, a.Say)
	if err != nil {
		return err
	}
	opt := ship.IngestOptions{Refused: func(r ship.Refused) {
		a.Complain(fmt.Errorf("refused %s (%s), which is kept in the stream of the refused: %w", r.ID, r.Subject, r.Err))
	}}
	if len(c.Key) > 0 {
		keys, err := statement.OpenKeys(a.ctx, c.Key, statement.ParseVerifier)
		if err != nil {
			return fmt.Errorf("--key %w", err)
		}
		opt.Keys = note.VerifierList(keys...)
	}
	m, err := a.meter(c.Metrics)
	if err != nil {
		return err
	}
	defer a.Close(m)
	st, err := c.store(a, h)
	if err != nil {
		return err
	}
	var g *ship.Ingester
	m.Ingester(&opt, func() ship.Stats { return g.Stats() })
	g = ship.NewIngester(config, st, opt)
	a.Say("taking segments from " + config.URL)
	err = g.Run(a.ctx)
	if a.ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		err = nil // a signal stopped it
	}
	return errors.Join(err, st.Close())
}

// config returns host.yaml's transport, with the flags' values in place of its own.
func (c ingestCmd) config(h *host.Host, warn func(string)) (ship.Config, error) {
	config, ok, err := h.Shipping().Config()
	if err != nil {
		return config, err
	}
	for _, f := range []struct {
		have *string
		flag string
	}{{&config.URL, c.NATS}, {&config.Creds, c.Creds}, {&config.NKey, c.NKey}, {&config.CA, c.CA},
		{&config.Cert, c.Cert}, {&config.Key, c.CertKey}, {&config.Monitor, c.Monitor}} {
		if f.flag != "" {
			*f.have = f.flag
		}
	}
	if !ok && c.NATS == "" {
		return config, errNoTransport
	}
	config.Warn = warn
	return config, nil
}

// store waits for a store that is not running yet: both may be started at the same time.
func (c ingestCmd) store(a *app, h *host.Host) (store.Store, error) {
	for warned := false; ; warned = true {
		st, err := h.Store(a.ctx)
		if err == nil || a.ctx.Err() != nil || !passing(err) {
			return st, err
		}
		if !warned {
			a.Say("the store cannot be reached yet, trying on: " + err.Error())
		}
		select {
		case <-a.ctx.Done():
			return nil, a.ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// passing reports whether waiting may help.
func passing(err error) bool {
	text := err.Error()
	return strings.Contains(text, "connection refused") || strings.Contains(text, "i/o timeout") || errors.Is(err, os.ErrDeadlineExceeded)
}
