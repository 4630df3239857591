package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/redact"
)

// memoryLog stores appended records, and up to which one they are synced.
type memoryLog struct {
	records []audit.Event
	synced  uint64
	fail    error // of the next sync
}

func (l *memoryLog) Append(_ context.Context, s redact.Sealed) (uint64, error) {
	var ev audit.Event
	err := json.Unmarshal(s.Bytes(), &ev)
	l.records = append(l.records, ev)
	return uint64(len(l.records)), err
}

func (l *memoryLog) Sync(_ context.Context, seq uint64) error {
	l.synced = max(l.synced, seq)
	return l.fail
}

// synced is a Recorder that syncs its log.
type syncedRecorder struct {
	*audit.Recorder
	*memoryLog
}

// TestManifest: the recorded lists result in the recorded root, with masked names, also if the copy failed.
func TestManifest(t *testing.T) {
	const value = "a-registered-value"
	red := redact.New([]byte("0123456789abcdef0123456789abcdef"))
	if err := red.Add("token", []byte(value)); err != nil {
		t.Fatal(err)
	}
	files := func() []audit.CopiedFile {
		return []audit.CopiedFile{
			{Path: "a", Mode: "0644", Size: 3, SHA256: strings.Repeat("ab", 32)},
			{Path: "dir/" + value, As: "dir/" + value + ".from-sandbox", Mode: "0600", Size: 4, SHA256: strings.Repeat("cd", 32)},
			{Path: "l\xffnk", Mode: "0777", Link: value},
		}
	}
	for name, c := range map[string]struct {
		lists int
		fail  error // of the sync of the last list
		err   error // of the copy
	}{
		"nothing":       {},
		"three lists":   {lists: 3},
		"a failed copy": {lists: 2, err: errors.New("it shrank")},
		"a failed sync": {lists: 2, fail: context.Canceled, err: errors.New("no record")},
	} {
		t.Run(name, func(t *testing.T) {
			log := &memoryLog{}
			m := newManifest(syncedRecorder{audit.NewRecorder(log, red), log}, audit.CopyOut, "/srv/out")
			list := m.list(t.Context())
			for i := range c.lists {
				if i == c.lists-1 {
					log.fail = c.fail
				}
				if err := list(files()); !errors.Is(err, log.fail) {
					t.Fatal(err)
				}
				if log.synced != uint64(i+1) {
					t.Errorf("list %d was taken when %d records were durable", i+1, log.synced)
				}
			}
			log.fail = nil
			if err := m.end(t.Context(), c.err); !errors.Is(err, c.err) {
				t.Errorf("the copy's error %v became %v", c.err, err)
			}
			var tree merkle.CopyTree
			for i, r := range log.records[:c.lists] {
				if r.Copy.Op != audit.CopyList || r.Copy.First != int64(3*i) || r.Observer != audit.Host {
					t.Errorf("list %d is %+v", i, r.Copy)
				}
				if text, _ := json.Marshal(r); strings.Contains(string(text), value) {
					t.Errorf("the value is in the record: %s", text)
				}
				if err := tree.Add(r.Copy); err != nil {
					t.Error(err)
				}
			}
			e := log.records[c.lists].Copy
			if e.Op != audit.CopyEnd || e.Dir != "/srv/out" || e.Direction != "out" || e.Count != int64(3*c.lists) || e.Bytes != int64(7*c.lists) || e.Root != tree.Root().String() {
				t.Errorf("the end is %+v, the lists give %s", e, tree.Root())
			}
			if (e.Reason == "") != (c.err == nil) || log.synced != uint64(c.lists+1) {
				t.Errorf("the reason is %q, %d records are durable", e.Reason, log.synced)
			}
		})
	}
	log := &memoryLog{}
	m := newManifest(syncedRecorder{audit.NewRecorder(log, red), log}, audit.CopyIn, ".")
	list := m.list(t.Context())
	if err := errors.Join(list(files()), list(files())); err != nil {
		t.Fatal(err)
	}
	if a, b := log.records[0].Copy.Salt, log.records[1].Copy.Salt; a == b || slices.Contains([]string{a, b}, "") {
		t.Errorf("salts %q and %q", a, b)
	}
}
