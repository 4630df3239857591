package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/witness"
	"github.com/custody-project/custody/home"
)

type witnessCmd struct {
	Key   witnessKeyCmd   `cmd:"" help:"Make this witness's key, and print its public half for policies."`
	Serve witnessServeCmd `cmd:"" help:"Cosign the checkpoints of logs that are known here (C2SP tlog-witness), until told to stop."`
}

type witnessKeyCmd struct {
	Name string `arg:"" help:"The witness's name, as it stands beside its cosignatures: witness.example.com."`
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
	Listen string   `default:"127.0.0.1:7380" placeholder:"ADDRESS" help:"Where to listen."`
	Log    []string `required:"" placeholder:"KEY|FILE" help:"Cosign the log that this public key signs."`
	Cert   string   `type:"existingfile" help:"TLS certificate, with the chain."`
	TLSKey string   `name:"tls-key" type:"existingfile" help:"Its key."`
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
	w, err := witness.New(config)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return errors.Join(err, w.Close())
	}
	a.say(fmt.Sprintf("witness %s listens at %s for %d logs", config.Verifier.Name(), l.Addr(), len(config.Logs)))
	return errors.Join(w.Serve(a.ctx, l, secure), w.Close())
}

func (c witnessServeCmd) config(a *app, h *home.Home) (witness.Config, error) {
	config := witness.Config{Dir: h.Witness(), Log: a.log}
	var err error
	config.Signer, config.Verifier, err = witness.Load(h.Witness())
	if errors.Is(err, fs.ErrNotExist) {
		return config, errors.New("this host is no witness yet: custody witness key NAME makes its key")
	}
	if err != nil {
		return config, err
	}
	for _, key := range c.Log {
		v, err := note.NewVerifier(keyText(key))
		if err != nil {
			return config, fmt.Errorf("--log %.60q is neither a public key nor a file with one: %w", key, err)
		}
		config.Logs = append(config.Logs, v)
	}
	return config, nil
}

// tls is nil where there is no certificate: then something in front of this speaks TLS.
func (c witnessServeCmd) tls() (*tls.Config, error) {
	if (c.Cert == "") != (c.TLSKey == "") {
		return nil, errors.New("--cert and --tls-key go together")
	}
	if c.Cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(c.Cert, c.TLSKey)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}
