//go:build linux

package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/monitor"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/witness"
	"github.com/custody-project/custody/command"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/regular"
)

type witnessCmd struct {
	Key   witnessKeyCmd   `cmd:"" help:"Make this witness's key, and print its public half for policies."`
	Serve witnessServeCmd `cmd:"" help:"Cosign the checkpoints of the given logs (C2SP tlog-witness) until stopped."`
}

type witnessKeyCmd struct {
	Name string `arg:"" help:"The witness's name, as its cosignatures state it: witness.example.com."`
}

func (c witnessKeyCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	public, err := witness.Generate(h.Witness(), c.Name)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.stdout, public)
	return err
}

type witnessServeCmd struct {
	Listen  string   `default:"127.0.0.1:7380" placeholder:"ADDRESS" help:"Where to listen."`
	Log     []string `required:"" placeholder:"KEY|FILE" help:"Cosign the log that this public key signs."`
	Entries []string `placeholder:"NAME=DIR|URL" help:"Read the entries of the log with that name there before cosigning, and refuse one with two histories of a run."`
	Cert    string   `type:"existingfile" help:"TLS certificate, with the chain."`
	TLSKey  string   `name:"tls-key" type:"existingfile" help:"Its key."`
}

func (c witnessServeCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	if err := a.service(h, "witness"); err != nil {
		return err
	}
	config, err := c.config(a, h)
	if err != nil {
		return err
	}
	secure, err := c.tls()
	if err != nil {
		return err
	}
	closeReaders, err := c.readers(a, h, &config)
	if err != nil {
		return err
	}
	defer closeReaders()
	w, err := witness.New(config)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return errors.Join(err, w.Close())
	}
	a.Say(fmt.Sprintf("witness %s listens at %s for %d logs", config.Verifier.Name(), l.Addr(), len(config.Logs)))
	return errors.Join(w.Serve(a.ctx, l, secure), w.Close())
}

func (c witnessServeCmd) config(a *app, h *host.Host) (witness.Config, error) {
	config := witness.Config{Dir: h.Witness(), Log: a.Log}
	var err error
	config.Signer, config.Verifier, err = witness.Load(h.Witness())
	if errors.Is(err, fs.ErrNotExist) {
		return config, errors.New("this host is no witness yet: custody witness key NAME makes its key")
	}
	if err != nil {
		return config, err
	}
	if config.Logs, err = statement.OpenKeys(a.ctx, c.Log, statement.ParseVerifier); err != nil {
		return config, fmt.Errorf("--log %w", err)
	}
	return config, nil
}

// tls returns nil without a certificate: then a proxy terminates TLS.
func (c witnessServeCmd) tls() (*tls.Config, error) {
	if (c.Cert == "") != (c.TLSKey == "") {
		return nil, command.Usage(errors.New("--cert and --tls-key go together"))
	}
	if c.Cert == "" {
		return nil, nil
	}
	pair, err := regular.KeyPair(c.Cert, c.TLSKey)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// readers opens the logs whose entries are read before cosigning.
func (c witnessServeCmd) readers(a *app, h *host.Host, config *witness.Config) (close func(), err error) {
	var open monitor.Readers
	for _, e := range c.Entries {
		name, where, ok := strings.Cut(e, "=")
		keys := slices.DeleteFunc(slices.Clone(config.Logs), func(v note.Verifier) bool { return v.Name() != name })
		if !ok || len(keys) == 0 {
			a.Close(&open)
			return nil, command.Usage(fmt.Errorf("--entries %.80q does not begin with the name of a --log and =", e))
		}
		if err := open.Add(a.ctx, monitor.WitnessStateFile(h.Monitors(), name), where, keys, a.Log); err != nil {
			a.Close(&open)
			return nil, err
		}
	}
	config.Readers = open.ByLog()
	return func() { a.Close(&open) }, nil
}
