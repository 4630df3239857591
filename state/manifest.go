package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/custody-project/custody/store"
)

const (
	magic       = "custody snapshot 1\n"
	maxManifest = 8 << 10
	maxHeader   = 32 << 10 // magic, manifest and the header of age
	maxText     = 512      // bytes of a value of Binding
)

// Limits of Meta.Keep.
const (
	DefaultKeep = 7 * 24 * time.Hour
	MaxKeep     = 10 * 365 * 24 * time.Hour
)

// Binding is what a snapshot belongs to. It can be opened only with the same values.
type Binding struct {
	Run      string `json:"run"`
	Tenant   string `json:"tenant"`
	Project  string `json:"project"`
	Template string `json:"template"` // digest
	// Base identifies the files that the parts of pages are relative to. The digest of a template does not: each host, and each
	// version of a machine monitor, takes its own snapshot of a template.
	// NoBase: they are relative to zeros.
	Base   string `json:"base"`
	Policy string `json:"policy"` // digest
	Tier   string `json:"tier"`
	Host   string `json:"host"`
}

// NoBase is the Base of a snapshot that needs no base. It can be opened with any.
const NoBase = "none"

// Meta describes a new snapshot.
type Meta struct {
	Binding
	Keep time.Duration // until it expires; 0: DefaultKeep
}

// Info describes a stored snapshot. It is read without the key: only Claim and Share authenticate it.
type Info struct {
	Binding
	Created time.Time
	Expires time.Time
	Size    int64 // bytes of the file
	// Damaged: the manifest cannot be read. The file's name gives Run, and its time Created and Expires.
	Damaged bool
}

// manifest is the second line of a file.
type manifest struct {
	Binding
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
}

func newManifest(m Meta, now time.Time) (manifest, error) {
	if m.Keep == 0 {
		m.Keep = DefaultKeep
	}
	if m.Keep < 0 || m.Keep > MaxKeep {
		return manifest{}, fmt.Errorf("a paused state cannot be kept for %v: name a time of at most %v", m.Keep, MaxKeep)
	}
	now = now.UTC().Truncate(time.Millisecond)
	made := manifest{Binding: m.Binding, Created: now, Expires: now.Add(m.Keep)}
	return made, made.check()
}

func (b Binding) values() map[string]string {
	return map[string]string{
		"tenant": b.Tenant, "project": b.Project, "template": b.Template, "base": b.Base, "policy": b.Policy, "tier": b.Tier, "host": b.Host,
	}
}

func (m manifest) check() error {
	if !store.ValidRun(m.Run) {
		return fmt.Errorf("%.80q is not the ID of a run", m.Run)
	}
	for name, text := range m.values() {
		if !printable(text) {
			return fmt.Errorf("the %s of run %s is not a printable text of at most %d bytes: %.80q", name, m.Run, maxText, text)
		}
	}
	return nil
}

func printable(text string) bool {
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return len(text) <= maxText && utf8.ValidString(text)
}

// compare returns the first value of the manifest that differs from what the caller wants. The tenant is first, so that another tenant
// learns nothing else.
func (m manifest) compare(want Binding) error {
	if m.Base == NoBase {
		want.Base = NoBase
	}
	for _, v := range []struct {
		what       Bound
		have, want string
	}{
		{BoundTenant, m.Tenant, want.Tenant},
		{BoundRun, m.Run, want.Run},
		{BoundProject, m.Project, want.Project},
		{BoundHost, m.Host, want.Host},
		{BoundTier, m.Tier, want.Tier},
		{BoundTemplate, m.Template, want.Template},
		{BoundBase, m.Base, want.Base},
		{BoundPolicy, m.Policy, want.Policy},
	} {
		if v.have != v.want {
			return &BoundError{want.Run, v.what}
		}
	}
	return nil
}

// encode returns the beginning of a file: the magic and the manifest, a line each.
func (m manifest) encode() ([]byte, error) {
	text, err := json.Marshal(m)
	if err == nil && len(text) > maxManifest {
		err = fmt.Errorf("the manifest of run %s has more than %d bytes", m.Run, maxManifest)
	}
	return append(append([]byte(magic), text...), '\n'), err
}

// parseManifest parses the beginning of a file, and returns the manifest and its length. A manifest has one encoding only.
func parseManifest(head []byte) (m manifest, n int, err error) {
	rest, found := bytes.CutPrefix(head, []byte(magic))
	if !found {
		return m, 0, errors.New("it does not begin as a paused state")
	}
	line, _, found := bytes.Cut(rest, []byte("\n"))
	if !found || len(line) > maxManifest {
		return m, 0, errors.New("its manifest has no end")
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return m, 0, fmt.Errorf("its manifest: %w", err)
	}
	if err := m.check(); err != nil {
		return m, 0, err
	}
	n = len(magic) + len(line) + 1
	again, err := m.encode()
	if err != nil || !bytes.Equal(again, head[:n]) {
		return m, 0, errors.New("its manifest is not encoded as Custody does")
	}
	return m, n, nil
}

// header is the part of a file that age has not encrypted.
type header struct {
	manifest
	sum   [sha256.Size]byte // of magic and manifest
	start int64             // where the file of age begins
}

// readHeader reads the header of a file. It checks that the header of age is complete, since age does not limit its length.
func readHeader(r io.ReaderAt) (h header, err error) {
	head, m, n, err := readManifest(r, maxHeader)
	if err != nil {
		return h, err
	}
	_, mac, found := bytes.Cut(head[n:], []byte("\n---"))
	if !found || !bytes.Contains(mac, []byte("\n")) {
		return h, altered(errors.New("the header of age has no end"))
	}
	return header{m, sha256.Sum256(head[:n]), int64(n)}, nil
}

// readManifest reads up to limit bytes from the beginning of a file, and parses the manifest in them, which has n bytes.
func readManifest(r io.ReaderAt, limit int) (head []byte, m manifest, n int, err error) {
	head = make([]byte, limit)
	got, err := r.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, m, 0, err
	}
	head = head[:got]
	m, n, err = parseManifest(head)
	return head, m, n, altered(err)
}
