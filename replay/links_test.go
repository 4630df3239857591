package replay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// TestLinkedFile: what is written under one name of a file is the content of its other names too,
// also when the name that it was written under is gone.
func TestLinkedFile(t *testing.T) {
	file := func(op audit.FileOp, path string) audit.File {
		return audit.File{Op: op, Path: audit.Text(path), Device: "0:26", Inode: "7"}
	}
	link := file(audit.FileCreate, "/tmp/x")
	link.Source = "/etc/passwd"
	evil := file(audit.FileWrite, "/tmp/x")
	evil.SHA256, evil.Size = "e71", 5
	moved := file(audit.FileRename, "/etc/passwd")
	moved.To = "/etc/passwd.old"
	last := file(audit.FileWrite, "/etc/passwd.old")
	last.SHA256, last.Size = "1a57", 6
	other := audit.File{Op: audit.FileWrite, Path: "/tmp/x", SHA256: "07e4", Device: "0:26", Inode: "8"}
	var frames []store.Frame
	for i, f := range []audit.File{link, evil, moved, file(audit.FileDelete, "/tmp/x"), last, other} {
		frames = append(frames, storetest.Frame("r-1", uint64(i+1), audit.Event{
			Time: storetest.Start().Add(time.Duration(i) * time.Second), Observer: audit.Guest, Kind: audit.KindFile, File: &f}))
	}
	for after, want := range []string{
		"[/tmp/x:]", "[/etc/passwd:e71 /tmp/x:e71]", "[/etc/passwd.old:e71 /tmp/x:e71]",
		"[/etc/passwd.old:e71]", "[/etc/passwd.old:1a57]", "[/etc/passwd.old:1a57 /tmp/x:07e4]",
	} {
		s, err := StateAt(summary(frames), rowsOf(frames), storetest.Start().Add(time.Duration(after)*time.Second), 0)
		if err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, f := range s.Files {
			got = append(got, fmt.Sprintf("%s:%s", f.Path, f.SHA256))
		}
		if fmt.Sprint(got) != want {
			t.Errorf("after event %d: %v, want %s", after+1, got, want)
		}
	}
	s, err := Read(summary(frames), rowsOf(frames))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(s.Files().All(), func(h FileHistory) bool { return h.Path == "/etc/passwd" })
	if i < 0 {
		t.Fatal("what was written to /etc/passwd by another name is not in its history")
	}
	h := s.Files().All()[i]
	if h.SHA256 != "e71" || len(h.Changes) != 2 || h.Changes[0].As != "/tmp/x" || h.Changes[0].Op != audit.FileWrite {
		t.Errorf("%+v", h)
	}
}
