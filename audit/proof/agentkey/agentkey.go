package agentkey

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/internal/regular"
)

// maxWait bounds one request to the agent, which may wait for the user to touch a token.
const maxWait = 30 * time.Second

// Config names the agent and the key. Both are required.
type Config struct {
	Socket string // absolute path of the agent's socket
	Dir    string // of the public keys: CUSTODY_HOME/keys
}

// Source is a hostkey.Source. It and the keys that it returns are safe for concurrent use.
type Source struct{ config Config }

var _ hostkey.Source = (*Source)(nil)

// Error is a failure of the agent to sign.
type Error struct {
	Err  error
	hint string
}

// Error implements error.
func (e *Error) Error() string { return "the agent that holds the host's key: " + e.Err.Error() }

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Hint returns the remedy.
func (e *Error) Hint() string { return e.hint }

// Check checks the path of a socket, without opening it.
func Check(socket string) error {
	if !filepath.IsAbs(socket) || filepath.Clean(socket) != socket {
		return fmt.Errorf("%.80q: want the absolute path of an agent's socket", socket)
	}
	return nil
}

// New returns a Source. It does not connect to the agent yet.
func New(c Config) (*Source, error) { return &Source{c}, Check(c.Socket) }

// Key implements hostkey.Source: it returns the key that host.pub names, or on first use the agent's only key.
func (s *Source) Key(ctx context.Context) (hostkey.Key, error) {
	text, err := regular.ReadFile(filepath.Join(s.config.Dir, hostkey.PublicFile))
	if errors.Is(err, fs.ErrNotExist) {
		key, err := s.only(ctx, hostkey.DefaultName())
		if err != nil {
			return hostkey.Key{}, err
		}
		if err := os.MkdirAll(s.config.Dir, 0o700); err != nil {
			return hostkey.Key{}, err
		}
		return key, hostkey.Publish(s.config.Dir, key.Public)
	}
	if err != nil {
		return hostkey.Key{}, err
	}
	public := strings.TrimSpace(string(text))
	v, err := note.NewVerifier(public)
	if err != nil {
		return hostkey.Key{}, fmt.Errorf("%s: %w", hostkey.PublicFile, err)
	}
	all, err := s.list(ctx, v.Name())
	if err != nil {
		return hostkey.Key{}, err
	}
	for _, k := range all {
		if k.Public == public {
			return k, nil
		}
	}
	return hostkey.Key{}, &Error{fmt.Errorf("it has %d Ed25519 keys, and none of them is the one in %s", len(all), hostkey.PublicFile),
		"ssh-add the host's key again; if the key was stored elsewhere before, run custody key rotate --from, so that it signs the statement about this one"}
}

// Rotate implements hostkey.Source. The new key is the one that was added to the agent in addition to the current one.
func (s *Source) Rotate(ctx context.Context) ([]byte, error) {
	old, err := s.Key(ctx)
	if err != nil {
		return nil, err
	}
	return s.TakeOver(ctx, old)
}

// Finish implements hostkey.Source.
func (s *Source) Finish(ctx context.Context) error { return hostkey.PublishNext(ctx, s.config.Dir) }

// TakeOver implements hostkey.Source: the successor of old is the agent's only key that has not signed for this host.
func (s *Source) TakeOver(ctx context.Context, old hostkey.Key) ([]byte, error) {
	next, err := s.only(ctx, old.Name())
	if err != nil {
		return nil, err
	}
	stated, err := hostkey.Succeed(ctx, s.config.Dir, old, next.Public)
	if err == nil {
		err = hostkey.Publish(s.config.Dir, next.Public)
	}
	if err != nil {
		return nil, fmt.Errorf("rotate the host's key: %w", err)
	}
	return stated, nil
}

// only returns the agent's only key that was not the host's before.
func (s *Source) only(ctx context.Context, name string) (hostkey.Key, error) {
	all, err := s.list(ctx, name)
	if err != nil {
		return hostkey.Key{}, err
	}
	known := map[string]bool{}
	retired, err := hostkey.Retired(s.config.Dir)
	if err != nil {
		return hostkey.Key{}, err
	}
	for _, r := range retired {
		known[r.Old] = true
	}
	if public, err := regular.ReadFile(filepath.Join(s.config.Dir, hostkey.PublicFile)); err == nil {
		known[strings.TrimSpace(string(public))] = true
	}
	var fresh []hostkey.Key
	for _, k := range all {
		if !known[k.Public] {
			fresh = append(fresh, k)
		}
	}
	if len(fresh) != 1 {
		return hostkey.Key{}, &Error{fmt.Errorf("it has %d Ed25519 keys that were not this host's, want one", len(fresh)),
			"ssh-keygen -t ed25519 -f FILE makes a key, and ssh-add FILE gives it to the agent; remove others with ssh-add -d"}
	}
	return fresh[0], nil
}

// list returns the agent's Ed25519 keys under a name.
func (s *Source) list(ctx context.Context, name string) (all []hostkey.Key, err error) {
	err = s.ask(ctx, func(a agent.ExtendedAgent) error {
		listed, err := a.List()
		if err != nil {
			return err
		}
		for _, l := range listed {
			public, err := ssh.ParsePublicKey(l.Blob)
			if err != nil || public.Type() != ssh.KeyAlgoED25519 {
				continue
			}
			raw := ed25519.PublicKey(public.(ssh.CryptoPublicKey).CryptoPublicKey().(ed25519.PublicKey))
			vkey, err := note.NewEd25519VerifierKey(name, raw)
			if err != nil {
				return err
			}
			all = append(all, hostkey.Key{Public: vkey, Signer: &signer{s, name, raw, public}})
		}
		return nil
	})
	return all, err
}

// ask sends a request to the agent over a new connection.
func (s *Source) ask(ctx context.Context, talk func(agent.ExtendedAgent) error) error {
	const running = "is the agent running there, and may this process use its socket? nothing is signed until it answers"
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", s.config.Socket)
	if err != nil {
		return &Error{err, running}
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := talk(agent.NewClient(conn)); err != nil {
		return &Error{err, "an agent that is locked, or that asks a person and gets no answer, refuses: ssh-add -X unlocks it. " + running}
	}
	return nil
}

// signer signs with one of the agent's keys.
type signer struct {
	source *Source
	name   string
	public ed25519.PublicKey
	ssh    ssh.PublicKey
}

// Name implements note.Signer.
func (k *signer) Name() string { return k.name }

// KeyHash implements note.Signer.
func (k *signer) KeyHash() uint32 {
	sum := sha256.Sum256(append([]byte(k.name+"\n\x01"), k.public...))
	return binary.BigEndian.Uint32(sum[:])
}

// Sign implements note.Signer. It returns an error if its public key does not verify the signature.
func (k *signer) Sign(msg []byte) (sig []byte, err error) {
	err = k.source.ask(context.Background(), func(a agent.ExtendedAgent) error {
		s, err := a.Sign(k.ssh, bytes.Clone(msg))
		if err != nil {
			return err
		}
		if s.Format != ssh.KeyAlgoED25519 || !ed25519.Verify(k.public, msg, s.Blob) {
			return fmt.Errorf("its signature is not one of the key %s", base64.StdEncoding.EncodeToString(k.public))
		}
		sig = s.Blob
		return nil
	})
	return sig, err
}
