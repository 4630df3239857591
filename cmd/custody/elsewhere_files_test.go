package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// tree makes files in the user's directory: names that end in / are directories, and contents that begin with -> are symbolic links.
func (e *elsewhere) tree(files map[string]string) {
	e.user.Helper()
	for name, content := range files {
		path := filepath.Join(e.user.dir, name)
		dir := filepath.Dir(path)
		if strings.HasSuffix(name, "/") {
			dir = path
		}
		check(e.user.T, os.MkdirAll(dir, 0o777))
		if target, link := strings.CutPrefix(content, "->"); link {
			check(e.user.T, os.Symlink(target, path))
		} else if dir != path {
			e.user.write(path, content)
		}
	}
	check(e.user.T, filepath.WalkDir(e.user.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, someone, someone)
	}))
}

// holds fails the test unless a directory of the user has these files, with their contents, and no others. Directories end in /.
func (e *elsewhere) holds(dir string, want map[string]string) {
	e.user.Helper()
	got := map[string]string{}
	root := filepath.Join(e.user.dir, dir)
	check(e.user.T, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name := path[len(root)+1:]
		if d.IsDir() {
			got[name+"/"] = ""
			return nil
		}
		b, err := os.ReadFile(path)
		got[name] = string(b)
		return err
	}))
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		e.user.Errorf("%s has %.2000q, want %.2000q", dir, got, want)
	}
}

func elsewhereCp(t *testing.T, e *elsewhere) {
	box := e.detached("sleep 1000")
	large := strings.Repeat("content\x00\xff\n", 1<<17)
	files := map[string]string{"a": "in a", "b/c d/e": large, "b/c d/\xff": "", "b/none/": "", "b/": "", "b/c d/": ""}
	for name, content := range files {
		e.tree(map[string]string{"up/" + name: content})
	}
	check(t, os.Chmod(filepath.Join(e.user.dir, "up/a"), 0o750))
	// A file, under its own name, under another one, and back.
	e.user.must(0, "cp", "up/a", box+":")
	e.user.must(0, "cp", "up/a", box+":/tmp/a copy")
	if said := e.user.must(0, "exec", box, "--", "sh", "-c", "cat /workspace/a '/tmp/a copy'; stat -c ' %a %U' a"); said.stdout != "in ain a 750 root\n" {
		t.Errorf("the sandbox has %q", said.stdout)
	}
	e.tree(map[string]string{"down/": "", "down/target": "old"})
	e.user.must(0, "cp", box+":/tmp/a copy", "down")
	e.user.must(0, "cp", box+":a", "down/target")
	e.user.must(0, "cp", "-u", "nobody", box+":/etc/passwd", "down/name with spaces")
	passwd, err := os.ReadFile(filepath.Join(e.user.dir, "down/name with spaces"))
	check(t, err)
	e.holds("down", map[string]string{"a copy": "in a", "target": "in a", "name with spaces": string(passwd)})
	if i, err := os.Stat(filepath.Join(e.user.dir, "down/a copy")); err != nil || i.Mode().Perm() != 0o750 || !strings.Contains(string(passwd), "root:") {
		t.Errorf("the copy has %v, %v: %.40q", i.Mode(), err, passwd)
	}
	// A directory, into an existing one, under another name, again, and back.
	e.user.must(0, "cp", "up", box+":/tmp")
	e.user.must(0, "cp", "up", box+":/tmp/other name")
	e.user.must(0, "cp", "up", box+":/tmp/")
	e.user.must(0, "exec", box, "--", "sh", "-c", "diff -r /tmp/up '/tmp/other name' && test -d /tmp/up/b/none")
	for range 2 {
		e.user.must(0, "cp", box+":/tmp/up", "down")
		e.holds("down/up", files)
	}
	e.user.must(0, "cp", box+":/tmp/other name", "down/third name")
	e.holds("down/third name", files)
	e.cpLinks(box, files)
	e.cpRefused(box)
	e.cpInterrupted(box)
}

// cpLinks copies what has symbolic links, on both sides: none leads out of what is copied.
func (e *elsewhere) cpLinks(box string, files map[string]string) {
	e.user.Helper()
	e.tree(map[string]string{"links/file": "kept", "links/link": "->/etc/passwd", "links/dir": "->..", "to links": "->links"})
	said := e.user.must(125, "cp", "to links", box+":/tmp")
	e.user.contains(said.stderr, `links/link" is not copied`, `links/dir" is not copied`, "2 symbolic links and special files were not copied")
	e.user.must(0, "exec", box, "--", "sh", "-c", "test $(find '/tmp/to links' | wc -l) = 2; mkfifo '/tmp/to links/fifo'; ln -s /etc '/tmp/to links/etc'; ln -s '/tmp/to links' /tmp/top")
	e.tree(map[string]string{"outside/": "", "target/": ""})
	said = e.user.must(125, "cp", box+":/tmp/top", "target")
	e.user.contains(said.stderr, `/fifo" is not copied`, `/etc" is not copied`, "2 symbolic links and special files were not copied")
	e.holds("target", map[string]string{"top/": "", "top/file": "kept"})
	// A link of this machine, in the target, is not followed out of it; one at the place of a file is replaced.
	e.user.must(0, "exec", box, "--", "sh", "-c", "mkdir -p /tmp/deep/out /tmp/flat; echo new >/tmp/deep/out/file; echo new >/tmp/flat/a")
	e.tree(map[string]string{"trap/deep/out": "->../../outside", "trap/flat/a": "->../../outside/a"})
	e.user.contains(e.user.must(125, "cp", box+":/tmp/deep", "trap").stderr, "out", "escapes")
	e.user.must(0, "cp", box+":/tmp/flat", "trap")
	e.holds("outside", map[string]string{})
	if i, err := os.Lstat(filepath.Join(e.user.dir, "trap/flat/a")); err != nil || !i.Mode().IsRegular() {
		e.user.Errorf("the link was not replaced: %v, %v", i, err)
	}
}

// cpRefused tries copies that fail, and leave nothing.
func (e *elsewhere) cpRefused(box string) {
	e.user.Helper()
	e.tree(map[string]string{"empty/": "", "file": "x"})
	for _, c := range []struct {
		from, to string
		says     string
	}{
		{"missing", box + ":", "missing: no such file"},
		{box + ":/missing", "empty", `"/missing": there is no such file`},
		{box + ":/tmp/up", "empty/none/up", "empty/none: no such file"},
		{"file", box + ":/none/file", `there is no such file`},
		{"file", box + ":/none/", `"/none" is not a directory`},
		{box + ":a", "empty/none/", `"empty/none/" is not a directory`},
		{"up", box + ":/tmp/a copy", `"/tmp/a copy" is in the sandbox, and is not a directory`},
		{box + ":/tmp/up", "file", "file"},
		{box + ":/run/secrets", "empty", "/run/secrets"},
		{box + ":/", "empty", "hint: copy the directories in it"},
		{box + ":/tmp/to links/fifo", "empty", "neither a regular file nor a directory"},
		{"file", "empty", "must be in a sandbox"},
		{"./file:", "empty", "must be in a sandbox"},
		{box + ":a", box + ":b", "must be in a sandbox"},
		{"", box + ":", "empty"},
		{"r-unknown:a", "empty", "hint: custody ps lists the sandboxes"},
	} {
		said := e.user.custody("cp", c.from, c.to)
		if said.code != exitFailed || said.stdout != "" || !strings.Contains(said.stderr, c.says) || !strings.HasPrefix(said.stderr, "custody: ") {
			e.user.Errorf("custody cp %q %q: exit code %d: %s%s", c.from, c.to, said.code, said.stdout, said.stderr)
		}
	}
	e.user.contains(e.user.must(125, "cp", "-u", "nobody", "file", box+":/root/file").stderr, "may not")
	e.holds("empty", map[string]string{})
}

// cpInterrupted interrupts a copy, which leaves no part.
func (e *elsewhere) cpInterrupted(box string) {
	e.user.Helper()
	e.user.must(0, "exec", box, "--", "sh", "-c", "truncate -s 4G /tmp/large")
	cmd := e.user.command("cp", box+":/tmp/large", "empty")
	var errs screen
	cmd.Stderr = &errs
	e.user.start(cmd)
	eventually(e.user.T, "copying", func() bool {
		list, err := os.ReadDir(filepath.Join(e.user.dir, "empty"))
		return err != nil || len(list) > 0
	})
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(errs.String(), "interrupted") {
		e.user.Errorf("exit code %d: %s", code, errs.String())
	}
	e.holds("empty", map[string]string{})
}

func elsewherePort(t *testing.T, e *elsewhere) {
	box := e.detached(portServer)
	read := e.user.command("logs", "-f", box)
	var server screen
	read.Stdout = &server
	e.user.start(read)
	server.await(t, "ready")
	cmd := e.user.command("port", box, "0:8080", "0:8081", "0:9")
	var out, errs screen
	cmd.Stdout, cmd.Stderr = &out, &errs
	e.user.start(cmd)
	eventually(t, "listening", func() bool { return len(lines(out.String())) == 3 || strings.Contains(errs.String(), "\n") })
	ports := lines(out.String())
	if len(ports) != 3 || !strings.HasPrefix(ports[0], "127.0.0.1:") {
		t.Fatalf("it prints %q, %s", ports, errs.String())
	}
	web := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return e.dial(ports[0]) }}}
	for i := range 3 {
		res, err := web.Get(fmt.Sprint("http://sandbox/", i))
		check(t, err)
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(text) != fmt.Sprint("hello /", i) {
			t.Errorf("request %d: %q, %v", i, text, err)
		}
	}
	half, err := e.dial(ports[1])
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	_, err = half.Write(make([]byte, 1<<20))
	check(t, err)
	check(t, half.(*net.TCPConn).CloseWrite())
	if text, err := io.ReadAll(half); err != nil || !bytes.HasPrefix(text, []byte("got 1048576\n")) || len(text) != 12+1<<20 {
		t.Errorf("after the end of what is sent: %d bytes, %v: %s", len(text), err, errs.String())
	}
	nothing, err := e.dial(ports[2])
	if err == nil {
		_, err = nothing.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a port where nothing listens: %v", err)
	}
	eventually(t, "reported", func() bool { return strings.Contains(errs.String(), "port 9: ") })
	e.user.contains(errs.String(), "port 9: nothing listens on port 9 of the sandbox\n", "hint: start a server there")
	_, taken, _ := net.SplitHostPort(ports[0])
	e.user.contains(e.user.must(125, "port", box, taken+":8080").stderr, "address already in use")
	cmd.Process.Signal(os.Interrupt) // while a connection is open
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	for _, bad := range []string{"x", "8080:", ":8080", "1:0", "70000", "8080:80:80", "-1:80"} {
		e.user.contains(e.user.must(125, "port", box, "--", bad).stderr, "is not two ports")
	}
	e.user.contains(e.user.must(125, "port", "r-unknown", "0:80").stderr, "hint: custody ps lists the sandboxes")
	e.user.contains(e.user.must(125, "port", "--link", box, "8080").stderr, "has no host names for ports of sandboxes")
	e.portEnds(t)
}

// portEnds: the command ends with the first connection after the end of the sandbox.
func (e *elsewhere) portEnds(t *testing.T) {
	box := strings.TrimSpace(e.user.must(0, "run", "-q", "-d", "--", "sleep", "1000").stdout)
	cmd := e.user.command("port", box, "0:80")
	var out, errs screen
	cmd.Stdout, cmd.Stderr = &out, &errs
	e.user.start(cmd)
	out.await(t, "\n")
	e.user.must(0, "destroy", box)
	if _, err := e.dial(strings.TrimSpace(out.String())); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(errs.String(), "has ended") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	e.user.contains(e.user.must(125, "port", box, "0:80").stderr, "has ended", "hint: ")
}

// dial connects on the machine of the user.
func (e *elsewhere) dial(address string) (c net.Conn, err error) {
	e.here.do(func() error {
		c, err = net.Dial("tcp", address)
		return nil
	}, true)
	if err == nil {
		e.user.Cleanup(func() { c.Close() })
	}
	return c, err
}
