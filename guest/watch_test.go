package guest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/vmm/vmtest"
)

// watched is a directory that is watched.
type watched struct {
	*session
	changes chan channel.FileChange
	leave   context.CancelFunc
	ended   chan error
}

// watch watches a directory. It returns when changes are reported.
func (s *session) watch(path audit.Text, recursive bool, buffered int) *watched {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	w := &watched{s, make(chan channel.FileChange, buffered), cancel, make(chan error, 1)}
	go func() {
		_, err := s.guest.File(ctx, channel.FileRequest{Op: channel.FileWatch, Path: path, Recursive: recursive}, channel.FileTransfer{Change: func(c channel.FileChange) error {
			select {
			case w.changes <- c:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}})
		w.ended <- err
	}()
	s.Cleanup(cancel)
	if c := w.next(); c.Op != channel.ChangeReady {
		s.Fatalf("it begins with %+v", c)
	}
	return w
}

func (w *watched) next() channel.FileChange {
	w.Helper()
	select {
	case c := <-w.changes:
		return c
	case err := <-w.ended:
		w.Fatalf("the watch has ended: %v", err)
	case <-time.After(2 * time.Minute):
		w.Fatal("no change is reported")
	}
	return channel.FileChange{}
}

// until waits for a change, and returns all up to it. A change that is the same as the one before it is left out.
func (w *watched) until(last string) string {
	w.Helper()
	var all []string
	for {
		c := w.next()
		text := strings.TrimSpace(fmt.Sprint(c.Op, " ", c.Path, " ", c.To))
		if c.Directory {
			text += "/"
		}
		if len(all) == 0 || all[len(all)-1] != text {
			all = append(all, text)
		}
		if text == last {
			return strings.Join(all, "; ")
		}
	}
}

// TestWatch: changes in a directory are reported, and those that are lost are declared.
func TestWatch(t *testing.T) {
	inSession(t, vmtest.Options{}, func(s *session) {
		s.script(`mkdir -p /tmp/w/sub/deep /tmp/other; echo x >/tmp/w/sub/file; ln -s /tmp/other /tmp/w/link; echo x >/tmp/other/in`)
		w := s.watch("/tmp/w", true, 0)
		flat := s.watch("/tmp/w", false, 1000)
		for script, want := range map[string]string{ // each leaves the directory as it was
			`echo x >new; rm new`: "create new; write new; remove new",
			`mv sub/file sub/deep/moved; mv sub/deep/moved sub/file`:                                       "move sub/file sub/deep/moved; move sub/deep/moved sub/file",
			`mv sub /tmp/other; echo z >>/tmp/other/sub/file; mkdir only; rmdir only; mv /tmp/other/sub .`: "remove sub/; create only/; remove only/; create sub/",
			`echo x >/tmp/other/b; cat link/b; touch mark; rm mark`:                                        "create mark; write mark; remove mark",
		} {
			s.script("cd /tmp/w; " + script)
			last := want[strings.LastIndex(want, ";")+2:]
			if got := w.until(last); got != want {
				s.Errorf("%s: %s, want %s", script, got, want)
			}
			s.script(`touch /tmp/w/end; rm /tmp/w/end`) // what comes after the last change of the script
			w.until("remove end")
		}
		for range 4 { // scripts
			if got := flat.until("remove end"); strings.Contains(got, "sub/file") || strings.Contains(got, "sub/deep") {
				s.Errorf("changes below the directory: %s", got)
			}
		}
		s.script(`mkdir -p /tmp/w/n1/n2; echo x >/tmp/w/n1/n2/file; touch /tmp/w/after`)
		if got := w.until("write after"); !strings.Contains(got, "create n1/n2/file") && !strings.Contains(got, "write n1/n2/file") {
			s.Errorf("a new tree: %s", got)
		}
		s.movesDirectories(w)
		s.losesChanges()
		s.script(`rm -r /tmp/w`)
		if got := w.until("remove ./"); !strings.Contains(got, "remove sub/file") {
			s.Errorf("the end: %s", got)
		}
		if err := <-w.ended; err != nil {
			s.Errorf("the directory is gone: %v", err)
		}
		s.endsWatches()
		s.leavesWatches()
	})
}

// movesDirectories: directories that are moved are watched under their new names, also if others have taken their old ones meanwhile.
func (s *session) movesDirectories(w *watched) {
	s.Helper()
	s.script(`cd /tmp/w; mv sub sub2; echo y >>sub2/file; touch moved`)
	if got := w.until("write moved"); !strings.HasPrefix(got, "remove sub/; create sub2/") || !strings.Contains(got, "create sub2/file") {
		s.Errorf("a directory that is moved: %s", got)
	}
	s.script(`cd /tmp/w; mv sub2 sub; for i in {1..10}; do mkdir a; mv a b; mkdir a; mv a c; mv b a; rmdir a c; done; mkdir a; mv a b; mkdir a`)
	s.script(`cd /tmp/w; for i in a b sub/deep; do echo x >$i/new; rm $i/new; done`)
	got := w.until("remove sub/deep/new")
	for _, want := range []string{"remove a/new", "remove b/new"} {
		if !strings.Contains(got, want) {
			s.Errorf("a file in a new directory is missing: %s in %s", want, got)
		}
	}
}

// endsWatches: a watch ends when its path leads elsewhere, and when there is what it cannot watch. It goes on in a file system of two layers.
func (s *session) endsWatches() {
	s.Helper()
	s.script(`mkdir -p /tmp/e/{parent/dir,one,two,deep,long}; ln -s one /tmp/e/link`)
	lower := s.watch("/usr/share", false, 1000)
	for path, script := range map[audit.Text]string{
		"/tmp/e/parent/dir": `mv /tmp/e/parent /tmp/e/else`,
		"/tmp/e/link":       `ln -sfn two /tmp/e/link`,
		"/tmp/e/two":        `rmdir /tmp/e/two; mkdir /tmp/e/two`,
	} {
		w := s.watch(path, true, 0)
		s.script(script)
		if got := w.until("remove ./"); got != "remove ./" {
			s.Errorf("%s: %s", path, got)
		}
		if err := <-w.ended; err != nil {
			s.Errorf("%s: %v", path, err)
		}
	}
	for path, half := range map[audit.Text]string{
		"/tmp/e/deep": strings.Repeat("d/", channel.MaxDepth/2+1), "/tmp/e/long": strings.Repeat(strings.Repeat("d", 250)+"/", 9),
	} {
		w := s.watch(path, true, 1000)
		s.script(fmt.Sprintf(`cd %s; mkdir -p %s; cd %[2]s; mkdir -p %[2]s`, path, half))
		if err := <-w.ended; !isCode(err, channel.FileTooDeep) {
			s.Errorf("%s: %v", path, err)
		}
	}
	s.script(`sleep 2; touch /usr/share/new`)
	if got := lower.until("write new"); !strings.HasPrefix(got, "create new") {
		s.Errorf("in a file system of two layers: %s", got)
	}
	lower.leave()
	<-lower.ended
}

func isCode(err error, code channel.FileCode) bool {
	failed := (*channel.FileError)(nil)
	return errors.As(err, &failed) && failed.Code == code
}

// losesChanges: all changes are reported to a caller that takes them late, or it gets a change that some were lost. gVisor's queue has no bound.
func (s *session) losesChanges() {
	s.Helper()
	s.script(`mkdir /tmp/flood`)
	slow := s.watch("/tmp/flood", true, 0)
	files := 12000 // more than the kernel's queue and the windows of the stream have place for
	if strings.HasSuffix(s.Name(), "gvisor") {
		files = 500
	}
	s.script(fmt.Sprintf(`cd /tmp/flood; seq -f 'a-name-that-fills-the-window-of-the-stream-sooner-%%g' %d | xargs touch; mkdir later`, files))
	seen := map[audit.Text]bool{}
	for {
		c := slow.next()
		if c.Op == channel.ChangeLost {
			break
		}
		if c.Op == channel.ChangeCreate {
			seen[c.Path] = true
		}
		if c.Path == "later" {
			if len(seen) != files+1 {
				s.Errorf("%d changes were lost in silence", files+1-len(seen))
			}
			break
		}
	}
	s.script(`touch /tmp/flood/later/file`)
	if got := slow.until("write later/file"); !strings.Contains(got, "create later/file") {
		s.Errorf("after the flood: %.2000s", got)
	}
	slow.leave()
	<-slow.ended
}

// leavesWatches: callers that leave leave nothing in the guest, and what cannot be watched is refused.
func (s *session) leavesWatches() {
	s.Helper()
	s.script(`mkdir -p /tmp/many; cd /tmp/many; seq 4100 | xargs mkdir`)
	for range 10 {
		var all sync.WaitGroup
		for range 16 { // more than the kernel has instances of inotify for one user in all
			all.Go(func() {
				w := s.watch("/tmp/other", true, 0)
				w.leave()
				<-w.ended
			})
		}
		all.Wait()
	}
	for _, c := range []struct {
		path audit.Text
		code channel.FileCode
	}{
		{"/tmp/many", channel.FileWatches}, {"/proc", channel.FileKernel}, {"/run/secrets", channel.FileSecret}, {"/tmp/other/in", channel.FileNotDirectory}, {"/none", channel.FileMissing},
	} {
		s.refused(channel.FileRequest{Op: channel.FileWatch, Path: c.path, Recursive: true}, c.code)
	}
	last := s.watch("/tmp/other", true, 10)
	if err := s.guest.EndSession(s.Context()); err != nil {
		s.Error(err)
	}
	if err := <-last.ended; err == nil || errors.Is(err, channel.ErrHostile) {
		s.Errorf("a watch of a session that ends: %v", err)
	}
}
