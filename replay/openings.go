package replay

import (
	"slices"
	"time"

	"github.com/custody-project/custody/audit"
)

// maxReaders is how many processes are listed for one credential.
const maxReaders = 100

// Openings are the times that processes of the step opened a file with the credential for reading, as the guest's sensor
// claims. It reports each process and file once.
type Openings struct {
	// Readers are the first 100 processes, in the order in which each opened a file first.
	Readers []Reader `json:"readers"`
	// Opened counts the openings of all processes, and OpenedAfter those after the credential's end.
	Opened      int `json:"opened,omitempty"`
	OpenedAfter int `json:"opened_after,omitempty"`
}

// Reader is a process that opened a file with a credential.
type Reader struct {
	By    *Actor       `json:"by,omitempty"`
	Exe   audit.Text   `json:"exe,omitempty"` // of its latest exec, or of its ancestor's with By.Child
	Argv  []audit.Text `json:"argv,omitempty"`
	Paths []audit.Text `json:"paths"` // of the files
	Seq   uint64       `json:"seq"`   // of the first opening
	First time.Time    `json:"first"`
	Last  time.Time    `json:"last"`
	Times int          `json:"times"`
	After int          `json:"after,omitempty"` // how many of Times were after the credential's end
}

// open adds the opening of a file to the credentials in it: of each name the latest that the step had.
func (p *purse) open(r *records, m *moment, f *audit.File) {
	if f.Op != audit.FileRead {
		return
	}
	for _, name := range f.Secrets {
		if n := p.used[heldKey{m.step, name}]; n > 0 {
			c := &p.list[n-1]
			c.Openings.add(r, m, f, c.End != nil && m.happened().After(*c.End))
		}
	}
}

func (o *Openings) add(r *records, m *moment, f *audit.File, after bool) {
	o.Opened++
	by := r.actor(m, f.Proc, f.PID)
	i := slices.IndexFunc(o.Readers, func(one Reader) bool { return one.is(by) })
	if i < 0 && len(o.Readers) < maxReaders {
		i = len(o.Readers)
		o.Readers = append(o.Readers, newReader(r, m, by))
	}
	if after {
		o.OpenedAfter++
	}
	if i < 0 {
		return
	}
	reader := &o.Readers[i]
	reader.Last, reader.Times = m.time(), reader.Times+1
	if after {
		reader.After++
	}
	if !slices.Contains(reader.Paths, f.Path) {
		reader.Paths = append(reader.Paths, f.Path)
	}
}

func newReader(r *records, m *moment, by *Actor) Reader {
	reader := Reader{By: by, Seq: m.seq, First: m.time(), Paths: []audit.Text{}}
	if m.by >= 0 {
		e := r.moments[m.by].what.(*audit.Exec)
		reader.Exe, reader.Argv = e.Exe, e.Argv
	}
	return reader
}

// is reports whether by is the reader: the same process, with the same program.
func (r *Reader) is(by *Actor) bool {
	if r.By == nil || by == nil {
		return r.By == by
	}
	return r.By.Proc == by.Proc && r.By.PID == by.PID && r.By.Seq == by.Seq
}

// happened is when the record's event happened by the host's clock: of the guest's events as its clock claims, but never
// after they arrived.
func (m *moment) happened() time.Time {
	if m.claimed > 0 && m.claimed < m.at {
		return instantOf(m.claimed)
	}
	return m.time()
}
