package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/custody-project/custody/audit"
)

// FileHistory is one path and all that happened there, as the guest's sensor claims.
type FileHistory struct {
	Path     audit.Text     `json:"path"`
	Observer audit.Observer `json:"observer"`
	Size     int64          `json:"size"`
	SHA256   string         `json:"sha256,omitempty"`
	Unhashed string         `json:"unhashed,omitempty"`
	Deleted  bool           `json:"deleted,omitempty"`
	MovedTo  audit.Text     `json:"moved_to,omitempty"`
	Written  bool           `json:"written"` // false: only read
	First    time.Time      `json:"first"`
	Last     time.Time      `json:"last"`
	Seq      uint64         `json:"seq"` // of the last change
	By       *Actor         `json:"by,omitempty"`
	Changes  []FileChange   `json:"changes"`
}

// FileChange is one operation on a file.
type FileChange struct {
	Seq    uint64       `json:"seq"`
	Time   time.Time    `json:"time"`
	Op     audit.FileOp `json:"op"`
	Size   int64        `json:"size"`
	SHA256 string       `json:"sha256,omitempty"`
	From   audit.Text   `json:"from,omitempty"` // of a rename that led here
	As     audit.Text   `json:"as,omitempty"`   // the other name of the file that it was done under
	By     *Actor       `json:"by,omitempty"`
}

// Files are the files of a run, as the guest's sensor claims.
type Files struct{ story *Story }

// Files returns the index of the run's files.
func (s *Story) Files() Files { return Files{s} }

// All returns what happened to files, by path. Callers must not change the list.
func (x Files) All() []FileHistory {
	defer x.story.read()()
	return x.story.derived.files()
}

// makeFiles returns what some of the moments did to files; order has the numbers of all paths, sorted.
func makeFiles(r *records, moments []moment, order []int32) []FileHistory {
	histories := make([]*FileHistory, len(r.paths.names))
	of := func(path int32, m *moment) *FileHistory {
		h := histories[path]
		if h == nil {
			h = &FileHistory{Path: r.paths.names[path], Observer: m.observer, First: m.time()}
			histories[path] = h
		}
		return h
	}
	linked := links{}
	for i := range moments {
		m := &moments[i]
		f, is := m.what.(*audit.File)
		if !is || !f.Changes() {
			continue
		}
		by := r.actor(m, f.Proc, f.PID)
		h := of(m.x, m)
		h.change(m, f, by)
		if f.Source != "" {
			h.link(of(r.paths.of[f.Source], m))
		}
		for _, name := range linked.follow(&r.paths, m.x, f) {
			other := of(name, m)
			other.change(m, f, by)
			other.Changes[len(other.Changes)-1].As = f.Path
		}
		if f.Op == audit.FileRename {
			to := of(r.paths.of[f.To], m)
			to.arrive(m, h, by)
		}
	}
	list := []FileHistory{}
	for _, path := range order {
		if histories[path] != nil {
			list = append(list, *histories[path])
		}
	}
	return list
}

func (h *FileHistory) change(m *moment, f *audit.File, by *Actor) {
	h.Changes = append(h.Changes, FileChange{Seq: m.seq, Time: m.time(), Op: f.Op, Size: f.Size, SHA256: f.SHA256, By: by})
	h.Last = m.time()
	switch f.Op {
	case audit.FileCreate, audit.FileWrite:
		h.Written, h.Deleted, h.MovedTo = true, false, ""
		h.Size, h.SHA256, h.Unhashed = f.Size, f.SHA256, f.Unhashed
	case audit.FileDelete:
		h.Deleted, h.MovedTo = true, ""
	case audit.FileRename:
		h.MovedTo = f.To
	case audit.FileRead:
		if !h.Written { // known from a read: no write was observed
			h.Size, h.SHA256, h.Unhashed = f.Size, f.SHA256, f.Unhashed
		}
		if h.Seq != 0 {
			return
		}
	}
	h.Seq, h.By = m.seq, by
}

// link copies what is known of the content to its new name.
func (h *FileHistory) link(source *FileHistory) {
	if source.SHA256 != "" || source.Unhashed != "" {
		h.Size, h.SHA256, h.Unhashed = source.Size, source.SHA256, source.Unhashed
	}
}

// arrive is the destination of a rename: the history of the content moves with it.
func (h *FileHistory) arrive(m *moment, from *FileHistory, by *Actor) {
	if h == from {
		return
	}
	h.Changes = append(h.Changes, FileChange{Seq: m.seq, Time: m.time(), Op: audit.FileRename, Size: from.Size, SHA256: from.SHA256, From: from.Path, By: by})
	h.Last, h.Seq, h.By = m.time(), m.seq, by
	h.Size, h.SHA256, h.Unhashed = from.Size, from.SHA256, from.Unhashed
	h.Written, h.Deleted, h.MovedTo = true, false, ""
}

// sortPaths returns the numbers of paths in the paths' order.
func sortPaths(names []audit.Text) []int32 {
	order := make([]int32, len(names))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(names[a], names[b]) })
	return order
}
