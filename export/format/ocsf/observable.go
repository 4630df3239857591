package ocsf

import "github.com/custody-project/custody/export/internal/wire"

// observable is a value to search for, by the numbers of observable.type_id.
type observable struct {
	at        string // the object that has it
	attribute string // its name there
	id        int
	value     string
}

// observable.type_id
const (
	seenHostname = 1
	seenIP       = 2
	seenURL      = 6
	seenFile     = 7
	seenHash     = 8
	seenProcess  = 9
	seenPath     = 45
)

func observableType(id int) string {
	switch id {
	case seenHostname:
		return "Hostname"
	case seenIP:
		return "IP Address"
	case seenURL:
		return "URL String"
	case seenFile:
		return "File Name"
	case seenHash:
		return "Hash"
	case seenProcess:
		return "Process Name"
	case seenPath:
		return "File Path"
	}
	return "Unknown"
}

// maxObservables bounds the observables of one event, which only repeat attributes.
const maxObservables = 24

// observables are those of one event.
type observables struct {
	list [maxObservables]observable
	n    int
}

func (s *observables) add(at, attribute string, id int, value string) {
	if value != "" && s.n < maxObservables {
		s.list[s.n] = observable{at, attribute, id, value}
		s.n++
	}
}

// file adds the name of a file, and its path if the version has a type for it.
func (s *observables) file(v minor, at, path string) {
	if path == "" {
		return
	}
	s.add(at, "name", seenFile, wire.Base(path))
	if v.has(sincePathSeen) {
		s.add(at, "path", seenPath, path)
	}
}

func (s *observables) write(in wire.Object, v minor) {
	a := in.Arr("observables")
	for _, o := range s.list[:s.n] {
		if !a.Room(len(o.value)) {
			break
		}
		e := a.Elem()
		e.Consts("name", o.at, ".", o.attribute)
		e.Int("type_id", int64(o.id))
		if o.id != seenHash || v.has(sinceHash) {
			e.Const("type", observableType(o.id))
		}
		e.Str("value", o.value)
		e.End()
	}
	a.End()
}
