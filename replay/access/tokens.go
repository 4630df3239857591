package access

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/custody-project/custody/audit/durable"
)

// Token describes a token, without its text.
type Token struct {
	ID      string    `json:"id"` // t- and 12 hexadecimal digits, unique
	Name    string    `json:"name"`
	Tenant  string    `json:"tenant"`
	Role    Role      `json:"role"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	Used    time.Time `json:"used,omitzero"` // the hour of its latest use
}

// kept is a token in the file.
type kept struct {
	Token
	SHA256 string `json:"sha256"` // of the token's text, hex

	sum digest
}

type tokenFile struct {
	Version int    `json:"version"`
	Tokens  []kept `json:"tokens"`
}

// The bounds of tokens.
const (
	DefaultTTL = 90 * 24 * time.Hour
	MaxTTL     = 366 * 24 * time.Hour

	maxTokens    = 10_000
	maxTokenName = 64
	tokensName   = "tokens.json"
)

// ErrNoToken means that there is no such token.
var ErrNoToken = errors.New("no such token")

// Tokens are those of a directory (serve/ of $CUSTODY_HOME), in tokens.json: mode 0600,
// replaced as a whole, under a lock of all processes. Each use checks whether another
// process changed the file, so that what custody token rm removed is gone at the next request.
// Methods may be called concurrently.
type Tokens struct {
	dir string

	mu    sync.Mutex // guards the fields below: the file as it was last read
	stamp stamp
	err   error // why it could not be read; then there are no tokens
	bySum map[[8]byte]kept
	byID  map[string]Token
	used  map[string]time.Time // by id: uses that the file does not have yet
}

// OpenTokens reads the tokens below dir, which is made if need be.
func OpenTokens(dir string) (*Tokens, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open tokens: %w", err)
	}
	t := &Tokens{dir: dir, used: map[string]time.Time{}}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refresh()
	return t, t.err
}

// New makes a token and returns its text, which is not kept. ttl 0 means DefaultTTL.
// A tenant has no two tokens of one name.
func (t *Tokens) New(ctx context.Context, name, tenant string, role Role, ttl time.Duration) (string, error) {
	if ttl == 0 {
		ttl = DefaultTTL
	}
	switch err := (Grant{tenant, role}).check(); {
	case err != nil:
		return "", err
	case !validName(name):
		return "", fmt.Errorf("name %.80q: want 1 to %d printable characters", name, maxTokenName)
	case ttl < time.Minute || ttl > MaxTTL:
		return "", fmt.Errorf("ttl %v: want a minute to %v", ttl, MaxTTL)
	}
	text, sum := newSecret(TokenPrefix)
	now := time.Now().UTC().Truncate(time.Second)
	k := kept{Token: Token{ID: newID(), Name: name, Tenant: tenant, Role: role, Created: now, Expires: now.Add(ttl)}, SHA256: hex.EncodeToString(sum[:])}
	err := t.change(ctx, func(f *tokenFile) error {
		f.Tokens = slices.DeleteFunc(f.Tokens, func(o kept) bool { return !o.Expires.After(now.Add(-MaxTTL)) })
		if len(f.Tokens) >= maxTokens {
			return fmt.Errorf("there are %d tokens already: remove some", len(f.Tokens))
		}
		for _, o := range f.Tokens {
			if o.Name == name && o.Tenant == tenant && o.Expires.After(now) {
				return fmt.Errorf("there is a token %q in that tenant already (%s)", name, o.ID)
			}
		}
		f.Tokens = append(f.Tokens, k)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("new token: %w", err)
	}
	return text, nil
}

// List returns all tokens, oldest first, with those that expired.
func (t *Tokens) List() ([]Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refresh()
	out := make([]Token, 0, len(t.byID))
	for _, k := range t.byID {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b Token) int {
		return or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})
	return out, t.err
}

// Remove removes the token with this id, or with this name if there is one such name in all
// tenants. The error is ErrNoToken if there is none.
func (t *Tokens) Remove(ctx context.Context, ref string) (Token, error) {
	var gone Token
	err := t.change(ctx, func(f *tokenFile) error {
		match := slices.DeleteFunc(slices.Clone(f.Tokens), func(k kept) bool { return k.ID != ref && k.Name != ref })
		if i := slices.IndexFunc(match, func(k kept) bool { return k.ID == ref }); i >= 0 {
			match = match[i : i+1]
		}
		switch len(match) {
		case 0:
			return fmt.Errorf("%.80q: %w", ref, ErrNoToken)
		case 1:
		default:
			return fmt.Errorf("%d tokens have the name %.80q: give the id", len(match), ref)
		}
		gone = match[0].Token
		f.Tokens = slices.DeleteFunc(f.Tokens, func(k kept) bool { return k.ID == gone.ID })
		return nil
	})
	if err != nil {
		return Token{}, fmt.Errorf("remove token: %w", err)
	}
	return gone, nil
}

// find returns the token with this text that has not expired. An error means that the tokens could not be read.
func (t *Tokens) find(text string) (Token, bool, error) {
	sum := digestOf(text)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refresh()
	k, ok := t.bySum[[8]byte(sum[:8])]
	ok = ok && subtle.ConstantTimeCompare(k.sum[:], sum[:]) == 1 && time.Now().Before(k.Expires)
	if !ok {
		return Token{}, false, t.err
	}
	t.used[k.ID] = time.Now()
	return k.Token, true, t.err
}

// holds reports whether tok is still there as it was: not removed, not expired, in the same tenant and role.
func (t *Tokens) holds(tok Token) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refresh()
	k, ok := t.byID[tok.ID]
	return ok && k.Tenant == tok.Tenant && k.Role == tok.Role && k.Expires.Equal(tok.Expires) && time.Now().Before(k.Expires)
}

// refresh reads the file again if it is another than last time. mu is held.
func (t *Tokens) refresh() {
	now, err := stampOf(t.path())
	if errors.Is(err, fs.ErrNotExist) {
		t.set(stamp{}, tokenFile{}, nil)
		return
	}
	if err == nil && now == t.stamp && t.err == nil {
		return
	}
	f, st, err := readTokens(t.path())
	t.set(st, f, err)
}

// set replaces the tokens with those that were read. mu is held.
func (t *Tokens) set(st stamp, f tokenFile, err error) {
	t.stamp, t.err = st, err
	t.bySum, t.byID = map[[8]byte]kept{}, map[string]Token{}
	for _, k := range f.Tokens {
		t.bySum[[8]byte(k.sum[:8])], t.byID[k.ID] = k, k.Token
	}
}

// change has f edit the file under the lock of all processes, and puts it into place durably.
func (t *Tokens) change(ctx context.Context, f func(*tokenFile) error) error {
	unlock, err := lockFile(ctx, filepath.Join(t.dir, "tokens.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	file, _, err := readTokens(t.path())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := f(&file); err != nil {
		return err
	}
	file.Version = 1
	data, err := json.MarshalIndent(file, "", " ")
	if err != nil {
		return err
	}
	return durable.Replace(t.path(), append(data, '\n'), 0o600)
}

// note records the uses since the last call, by the hour. It is for the Gate's own goroutine.
func (t *Tokens) note(ctx context.Context) error {
	t.mu.Lock()
	used := t.used
	t.used = map[string]time.Time{}
	for id, at := range used {
		if k, ok := t.byID[id]; !ok || !at.Truncate(time.Hour).After(k.Used) {
			delete(used, id)
		}
	}
	t.mu.Unlock()
	if len(used) == 0 {
		return nil
	}
	return t.change(ctx, func(f *tokenFile) error {
		for i, k := range f.Tokens {
			if at, ok := used[k.ID]; ok {
				f.Tokens[i].Used = at.UTC().Truncate(time.Hour)
			}
		}
		return nil
	})
}

func (t *Tokens) path() string { return filepath.Join(t.dir, tokensName) }

// validName reports whether s can be the name of a principal: it is shown to people.
func validName(s string) bool {
	return s != "" && len(s) <= maxTokenName && strings.TrimSpace(s) == s &&
		!strings.ContainsFunc(s, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) })
}

// validUser reports whether s can be a user's name at an issuer.
func validUser(s string) bool {
	return s != "" && len(s) <= 256 && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

func newID() string {
	var b [6]byte
	rand.Read(b[:])
	return "t-" + hex.EncodeToString(b[:])
}
