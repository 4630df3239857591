// Package witness implements both sides of C2SP tlog-witness: the server that cosigns the
// checkpoints of configured logs, and the policy that names the witnesses that a log asks
// and the cosignatures that a verifier requires.
package witness

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/transparency-dev/tessera"
	"golang.org/x/mod/sumdb/note"
)

// ErrPolicy: the text is not a valid policy of witnesses, or not a safe one.
var ErrPolicy = errors.New("witness policy")

const maxPolicy = 1 << 20 // bytes

// Policy names the witnesses to ask and the cosignatures that suffice. It is immutable and safe for concurrent
// use.
type Policy struct {
	group tessera.WitnessGroup
	peers []Peer
}

// Peer is a witness in a policy.
type Peer struct {
	Name string        // of its key, as on the signature lines
	URL  string        // base of the add-checkpoint endpoint
	Key  note.Verifier // verifies its cosignatures
}

// ParsePolicy parses a policy in the format of sigsum and C2SP, one item a line:
//
//	witness NAME VKEY URL       VKEY is a cosignature/v1 key, URL the prefix before /add-checkpoint
//	group NAME N|any|all CHILD...
//	quorum NAME|none            of a witness or a group
//
// It skips lines that begin with "log"; # begins a comment. Stricter than the format, it refuses a key,
// a URL or a child that occurs twice, and a threshold of 0: each would make a
// quorum weaker than it appears.
func ParsePolicy(text []byte) (*Policy, error) {
	if len(text) > maxPolicy {
		return nil, fmt.Errorf("%w: it has more than %d bytes", ErrPolicy, maxPolicy)
	}
	if err := checkOnce(text); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	group, err := tessera.NewWitnessGroupFromPolicy(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	p := &Policy{group: group}
	for url, key := range group.Endpoints() {
		p.peers = append(p.peers, Peer{Name: key.Name(), URL: url, Key: key})
	}
	slices.SortFunc(p.peers, func(a, b Peer) int { return strings.Compare(a.URL, b.URL) })
	return p, nil
}

// checkOnce refuses duplicates, and thresholds of 0.
func checkOnce(text []byte) error {
	seen := map[string]bool{}
	once := func(what, value string) error {
		if seen[what+" "+value] {
			return fmt.Errorf("duplicate %s %s", what, value)
		}
		seen[what+" "+value] = true
		return nil
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		f := strings.Fields(line)
		switch {
		case len(f) == 4 && f[0] == "witness":
			key, err := rawKey(f[2])
			if err != nil {
				return err
			}
			if err := errors.Join(checkURL(f[3]), once("key", key), once("url", strings.TrimRight(f[3], "/"))); err != nil {
				return err
			}
		case len(f) > 2 && f[0] == "group":
			if strings.Trim(f[2], "0") == "" {
				return fmt.Errorf("group %s requires no witness", f[1])
			}
			for _, child := range f[3:] {
				if err := once("child", child); err != nil {
					return err
				}
			}
		case len(f) > 0 && f[0] == "quorum":
			if err := once("quorum", ""); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

// rawKey returns the public key in a vkey, without its name: one key can have several names.
func rawKey(vkey string) (string, error) {
	parts := strings.SplitN(vkey, "+", 3)
	if len(parts) != 3 {
		return "", fmt.Errorf("%.80q is not a public key", vkey)
	}
	key, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || len(key) < 2 {
		return "", fmt.Errorf("%.80q is not a public key", vkey)
	}
	return base64.StdEncoding.EncodeToString(key[1:]), nil // the first byte is the kind of signature
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil {
		return err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%.80q is not the URL of a witness", s)
	}
	return nil
}

// Peers returns the witnesses under the quorum, ordered by URL.
func (p *Policy) Peers() []Peer { return slices.Clone(p.peers) }

// Group returns the policy as a Tessera witness group.
func (p *Policy) Group() tessera.WitnessGroup { return p.group }

// Satisfied reports whether enough witnesses have cosigned the checkpoint. It does not check
// the log's own signature.
func (p *Policy) Satisfied(checkpoint []byte) bool { return p.group.Satisfied(checkpoint) }
