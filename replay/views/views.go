// Package views keeps the views that people saved of the page: a name, and an address within the page. They are
// no part of the record. No one sees another's.
package views

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/internal/flock"
	"github.com/custody-project/custody/internal/regular"
)

// Owner is whose views they are: a person, as the gate recognised him, in one tenant.
type Owner struct {
	Tenant string `json:"tenant,omitempty"`
	Via    string `json:"via"`
	Name   string `json:"name"`
}

// View is a place of the page under a name.
type View struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Address string    `json:"address"` // such as #/runs/r-1?kind=dns
	Saved   time.Time `json:"saved"`
}

// The limits.
const (
	MaxName    = 80   // characters of a name
	MaxAddress = 2048 // bytes
	MaxViews   = 100  // of one owner
	MaxOwners  = 5000 // of one host

	maxFile = 1 << 20
)

// Errors of a Shelf.
var (
	ErrNoView = errors.New("there is no such view")
	ErrFull   = errors.New("there is no room for another view")
	// ErrInvalid is a name or an address that no view can have.
	ErrInvalid = errors.New("no view can be saved like that")
)

// Screens are the parts of the page that addresses begin with.
func Screens() []string {
	return []string{"runs", "search", "findings", "compare", "check", "sandboxes", "reports", "exports", "access", "tokens"}
}

// address is what the page makes of a place: a screen, of a run its name, and parameters. It is a fragment and has
// no character that the page would not write, so it leads nowhere but into the page.
var address = regexp.MustCompile(`^#/(?:` + strings.Join(Screens(), "|") + `)(?:/[A-Za-z0-9._~!*'()%-]{1,384})?(?:\?[A-Za-z0-9._~!*'()%+&=-]*)?$`)

// Check reports as ErrInvalid why there can be no such view.
func Check(name, addr string) error {
	switch {
	case strings.TrimSpace(name) == "" || utf8.RuneCountInString(name) > MaxName || !utf8.ValidString(name):
		return fmt.Errorf("%w: a name has 1 to %d characters", ErrInvalid, MaxName)
	case strings.ContainsFunc(name, func(r rune) bool { return r != ' ' && !unicode.IsGraphic(r) || unicode.Is(unicode.Cf, r) }):
		return fmt.Errorf("%w: the name has a character that cannot be seen", ErrInvalid)
	case len(addr) > MaxAddress || !address.MatchString(addr):
		return fmt.Errorf("%w: the address is not one of the page's", ErrInvalid)
	}
	return nil
}

// Shelf keeps views below a directory, a file for each owner. Its methods may be called
// concurrently, and by several processes.
type Shelf struct{ dir string }

// Open returns the shelf at dir, which is made when the first view is saved.
func Open(dir string) *Shelf { return &Shelf{dir} }

// List returns the owner's views, by name.
func (s *Shelf) List(o Owner) ([]View, error) { return s.read(o) }

// Save adds a view.
func (s *Shelf) Save(ctx context.Context, o Owner, name, addr string) (View, error) {
	v := View{ID: newID(), Name: name, Address: addr, Saved: time.Now().UTC().Truncate(time.Second)}
	return v, s.change(ctx, o, v.check(), func(all []View) ([]View, error) {
		if len(all) >= MaxViews {
			return nil, fmt.Errorf("%w: you have %d", ErrFull, len(all))
		}
		return append(all, v), nil
	})
}

// Replace gives a view another name and address.
func (s *Shelf) Replace(ctx context.Context, o Owner, id, name, addr string) (v View, _ error) {
	err := s.change(ctx, o, Check(name, addr), func(all []View) ([]View, error) {
		i := slices.IndexFunc(all, func(v View) bool { return v.ID == id })
		if i < 0 {
			return nil, ErrNoView
		}
		all[i].Name, all[i].Address = name, addr
		v = all[i]
		return all, nil
	})
	return v, err
}

// Remove removes a view.
func (s *Shelf) Remove(ctx context.Context, o Owner, id string) error {
	return s.change(ctx, o, nil, func(all []View) ([]View, error) {
		rest := slices.DeleteFunc(all, func(v View) bool { return v.ID == id })
		if len(rest) == len(all) {
			return nil, ErrNoView
		}
		return rest, nil
	})
}

// change has f change the owner's views, if bad is nil.
func (s *Shelf) change(ctx context.Context, o Owner, bad error, f func([]View) ([]View, error)) error {
	if bad != nil {
		return bad
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("save a view: %w", err)
	}
	lock, err := regular.OpenFile(filepath.Join(s.dir, "lock"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("save a view: %w", err)
	}
	defer lock.Close()
	if err := flock.Lock(ctx, lock, unix.LOCK_EX); err != nil {
		return fmt.Errorf("save a view: %w", err)
	}
	all, err := s.read(o)
	if err != nil {
		return err
	}
	before := len(all)
	if all, err = f(all); err != nil {
		return err
	}
	if before == 0 {
		if err := s.room(); err != nil {
			return err
		}
	}
	text, err := json.Marshal(file{1, o, all})
	if err != nil {
		return err
	}
	return durable.Replace(s.path(o), text, 0o600)
}

// room reports whether one more owner can have a file.
func (s *Shelf) room() error {
	entries, err := os.ReadDir(s.dir)
	if err == nil && len(entries) >= MaxOwners {
		err = fmt.Errorf("%w: %d people have some on this host", ErrFull, len(entries))
	}
	return err
}

// file is what a file holds.
type file struct {
	Version int    `json:"version"`
	Owner   Owner  `json:"owner"`
	Views   []View `json:"views"`
}

// path is where the owner's views are; his name can have any character.
func (s *Shelf) path(o Owner) string {
	sum := sha256.Sum256([]byte(o.Tenant + "\x00" + o.Via + "\x00" + o.Name))
	return filepath.Join(s.dir, hex.EncodeToString(sum[:])+".json")
}

func (s *Shelf) read(o Owner) ([]View, error) {
	f, err := regular.OpenFile(s.path(o), os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return []View{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read saved views: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil {
		var all []View
		if all, err = parse(text, o); err == nil {
			return all, nil
		}
	}
	return nil, fmt.Errorf("read %s: %w", s.path(o), err)
}

// parse reads what change wrote. All of it must be right.
func parse(text []byte, o Owner) ([]View, error) {
	if len(text) > maxFile {
		return nil, errors.New("it is too long")
	}
	var f file
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("data after the views")
	}
	if f.Version != 1 || f.Owner != o || len(f.Views) > MaxViews {
		return nil, fmt.Errorf("version %d with %d views of %q: want version 1, at most %d, of %q", f.Version, len(f.Views), f.Owner, MaxViews, o)
	}
	for i, v := range f.Views {
		if err := v.check(); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(f.Views[:i], func(w View) bool { return w.ID == v.ID }) {
			return nil, fmt.Errorf("the view %s comes twice", v.ID)
		}
	}
	slices.SortFunc(f.Views, func(a, b View) int { return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID)) })
	if f.Views == nil {
		f.Views = []View{}
	}
	return f.Views, nil
}

func (v View) check() error {
	if b, err := hex.DecodeString(v.ID); err != nil || len(b) != 8 {
		return fmt.Errorf("%.40q is no id of a view", v.ID)
	}
	return Check(v.Name, v.Address)
}

func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it does not fail
	return hex.EncodeToString(b[:])
}
