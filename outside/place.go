package outside

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/secrets/vault"
)

// The calls of away.
const (
	callCredential = "place-credential"
	callDial       = "place-dial"
	callAudit      = "place-audit"
	callAddresses  = "place-addresses"
	callSave       = "place-save"
	callRemove     = "place-remove"
	callNotes      = "place-notes"
)

// maxNotes bounds the notes of a run that exist at the same time.
const maxNotes = 1024

type (
	fileID struct{ Device, Inode uint64 } // none: both are 0
	save   struct {
		Name string
		Note vault.Note
	}
	noteName struct{ Name string }
	notes    struct {
		Notes map[string]vault.Note
		Error string
	}
)

// place gives the process what it needs of the host: the credential of its login, Vault's socket and audit log if they are configured, and
// the notes of its run, or of those that it is to sweep.
type place struct {
	here   vault.Place
	config vault.Config
	run    string // "": it saves no notes

	mu    sync.Mutex // guards the fields below
	alive func(run string) bool
	known map[string]bool // names of the notes that the process has saved or got
}

func newPlace(here vault.Place, c vault.Config, run string) *place {
	return &place{here: here, config: c, run: run, known: map[string]bool{}}
}

// allow gives the process the notes of runs that are not alive.
func (p *place) allow(alive func(run string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alive = alive
}

func (p *place) handlers() map[string]privsep.Handler {
	return map[string]privsep.Handler{
		callCredential: privsep.Handle(p.credential),
		callDial:       privsep.Handle(p.dial),
		callAudit:      privsep.Handle(p.audit),
		callAddresses:  privsep.Handle(p.addresses),
		callSave:       privsep.Handle(p.save),
		callRemove:     privsep.Handle(p.remove),
		callNotes:      privsep.Handle(p.notes),
	}
}

func (p *place) credential(context.Context, none) (any, []*os.File, error) {
	text, err := p.here.Credential()
	if err != nil {
		return nil, nil, err
	}
	f, err := privsep.Memory("credential", text)
	if err != nil {
		return nil, nil, err
	}
	return none{}, []*os.File{f}, nil
}

func (p *place) dial(ctx context.Context, _ none) (any, []*os.File, error) {
	c, err := p.here.Dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, nil, errors.New("the address of Vault is not a unix socket")
	}
	f, err := u.File()
	if err != nil {
		return nil, nil, err
	}
	return none{}, []*os.File{f}, nil
}

func (p *place) audit(_ context.Context, known fileID) (any, []*os.File, error) {
	if p.config.Audit == "" {
		return nil, nil, errors.New("there is no audit log")
	}
	f, err := p.here.Audit(nil)
	if err != nil {
		return nil, nil, err
	}
	if id, err := idOf(f); err != nil || id == known {
		f.Close()
		return none{}, nil, err
	}
	return none{}, []*os.File{f}, nil
}

func idOf(f *os.File) (fileID, error) {
	var s unix.Stat_t
	raw, err := f.SyscallConn()
	if err != nil {
		return fileID{}, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.Fstat(int(fd), &s) })
	return fileID{s.Dev, s.Ino}, errors.Join(err, failed)
}

func (p *place) addresses(context.Context, none) (any, []*os.File, error) {
	list, err := p.here.Addresses()
	return list, nil, err
}

func (p *place) save(_ context.Context, s save) (any, []*os.File, error) {
	if p.run == "" {
		return nil, nil, errors.New("a process without a run saves no notes")
	}
	if err := errors.Join(vault.CheckName(s.Name), s.Note.Check(p.config, p.run)); err != nil {
		return nil, nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known[s.Name] && len(p.known) >= maxNotes {
		return nil, nil, fmt.Errorf("the run has %d notes on tokens at Vault", maxNotes)
	}
	p.known[s.Name] = true
	return none{}, nil, p.here.SaveNote(s.Name, s.Note)
}

func (p *place) remove(_ context.Context, n noteName) (any, []*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known[n.Name] {
		return nil, nil, fmt.Errorf("the note %.100q is not one of this process", n.Name)
	}
	if err := p.here.RemoveNote(n.Name); err != nil {
		return nil, nil, err
	}
	delete(p.known, n.Name)
	return none{}, nil, nil
}

// notes returns those of runs that are not alive, on the Vault of this login.
func (p *place) notes(context.Context, none) (any, []*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alive == nil {
		return nil, nil, errors.New("the process is not to sweep")
	}
	all, err := p.here.Notes()
	give := notes{Notes: map[string]vault.Note{}}
	if err != nil {
		give.Error = err.Error()
	}
	for name, n := range all {
		if n.Check(p.config, n.Run) == nil && !p.alive(n.Run) {
			give.Notes[name], p.known[name] = n, true
		}
	}
	f, err := privsep.Memory("notes", give)
	if err != nil {
		return nil, nil, err
	}
	return none{}, []*os.File{f}, nil
}

// away is the vault.Place of the process.
type away struct {
	root  *privsep.Conn
	trust vault.Trust
}

var _ vault.Place = (*away)(nil)

// call makes a call that returns at most one file, nil if it returns none.
func (a *away) call(ctx context.Context, name string, args, result any) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, maxCall)
	defer cancel()
	files, err := a.root.Call(ctx, name, args, result)
	if err != nil || len(files) == 0 {
		return nil, remoteError(err)
	}
	closeAll(files[1:])
	return files[0], nil
}

// value makes a call that returns a value in memory.
func (a *away) value(name string, into any) error {
	f, err := a.call(context.Background(), name, none{}, nil)
	if err != nil {
		return err
	}
	return privsep.FromMemory(f, into)
}

// Credential implements vault.Place.
func (a *away) Credential() (text string, err error) {
	err = a.value(callCredential, &text)
	return text, err
}

// Trust implements vault.Place.
func (a *away) Trust() (vault.Trust, error) { return a.trust, nil }

// Dial implements vault.Place.
func (a *away) Dial(ctx context.Context) (net.Conn, error) {
	f, err := a.call(ctx, callDial, none{}, nil)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileConn(f)
}

// Audit implements vault.Place.
func (a *away) Audit(known fs.FileInfo) (*os.File, error) {
	var id fileID
	if known != nil {
		if s, ok := known.Sys().(*syscall.Stat_t); ok {
			id = fileID{s.Dev, s.Ino}
		}
	}
	return a.call(context.Background(), callAudit, id, nil)
}

// Addresses implements vault.Place.
func (a *away) Addresses() (list []net.IP, err error) {
	_, err = a.call(context.Background(), callAddresses, none{}, &list)
	return list, err
}

// SaveNote implements vault.Place.
func (a *away) SaveNote(name string, n vault.Note) error {
	_, err := a.call(context.Background(), callSave, save{name, n}, nil)
	return err
}

// RemoveNote implements vault.Place.
func (a *away) RemoveNote(name string) error {
	_, err := a.call(context.Background(), callRemove, noteName{name}, nil)
	return err
}

// Notes implements vault.Place.
func (a *away) Notes() (map[string]vault.Note, error) {
	var got notes
	if err := a.value(callNotes, &got); err != nil {
		return nil, err
	}
	if got.Error != "" {
		return got.Notes, errors.New(got.Error)
	}
	return got.Notes, nil
}
