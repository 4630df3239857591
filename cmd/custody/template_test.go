package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/custody-project/custody/vmm/template"
)

const helloSource = `package main

import (
	"fmt"
	"os"
	"strings"
)

func main() {
	if name, err := os.Hostname(); err != nil || !strings.HasPrefix(read("/etc/hostname"), name+"\n") {
		fmt.Println("hostname", name, err)
	}
	if !strings.Contains(read("/proc/self/status"), "hello") || !strings.Contains(read("/etc/resolv.conf"), "nameserver") || read("/dev/null") != "" {
		fmt.Println("proc, dev or etc is not as it should be")
	}
	fmt.Println("hello", os.Args[1:], os.Getenv("FROM_IMAGE"))
	os.Exit(3)
}

func read(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
`

// crooked are links that a userland has where a sandbox needs something else, and VICTIM is a directory of the host.
var crooked = map[string]string{
	"dev": "VICTIM", "proc": "../../../VICTIM", "sys": "VICTIM/new", "run": "dev", "workspace": "VICTIM", "tmp": "VICTIM", "root": "VICTIM",
	"etc/hostname": "/init", "etc/hosts": "../../init", "etc/machine-id": "/nowhere", "etc/resolv.conf": "../run/resolv.conf",
}

// TestTemplates makes a template from a directory and one from an image, each
// with nothing but one static program in it, and runs that. The directory's links lead to the host.
func TestTemplates(t *testing.T) {
	d := newDoor(t)
	work := t.TempDir()
	tree := filepath.Join(work, "tree")
	must(t, os.MkdirAll(filepath.Join(tree, "bin"), 0o755))
	must(t, os.MkdirAll(filepath.Join(tree, "etc"), 0o755))
	victim := filepath.Join(work, "victim")
	must(t, os.Mkdir(victim, 0o700))
	for name, to := range crooked {
		must(t, os.Symlink(strings.Replace(to, "VICTIM", victim, 1), filepath.Join(tree, name)))
	}
	must(t, os.WriteFile(filepath.Join(work, "hello.go"), []byte(helloSource), 0o644))
	build := exec.Command("go", "build", "-o", filepath.Join(tree, "bin", "hello"), filepath.Join(work, "hello.go"))
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program, err := os.ReadFile(filepath.Join(tree, "bin", "hello"))
	must(t, err)
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		err := w.WriteHeader(&tar.Header{Name: "bin/hello", Mode: 0o755, Size: int64(len(program)), Typeflag: tar.TypeReg})
		if err == nil {
			_, err = w.Write(program)
		}
		return io.NopCloser(&b), errors.Join(err, w.Close())
	})
	must(t, err)
	img, err := mutate.AppendLayers(empty.Image, layer)
	must(t, err)
	img, err = mutate.Config(img, v1.Config{Env: []string{"FROM_IMAGE=yes"}})
	must(t, err)
	tag, err := name.NewTag("hello:latest")
	must(t, err)
	saved := filepath.Join(work, "hello.tar")
	must(t, tarball.WriteToFile(saved, tag, img))

	for source, want := range map[string]string{"--dir=" + tree: "hello [a b c] \n", "--oci=" + saved: "hello [a b c] yes\n"} {
		id := fmt.Sprintf("door-%s-%d", source[2:5], os.Getpid())
		if s := d.custody("template", "build", id, source); s.code != 0 {
			t.Fatalf("template build %s: %d\n%s", source, s.code, s.stderr)
		}
		t.Cleanup(func() {
			if s := d.custody("template", "rm", id); s.code != 0 {
				t.Errorf("template rm: %d\n%s", s.code, s.stderr)
			}
		})
		if s := d.custody("template", "ls"); !strings.Contains(s.stdout, id) {
			t.Errorf("template ls does not show %s:\n%s", id, s.stdout)
		}
		if s := d.custody("run", "--template", id, "--", "hello", "a", "b c"); s.code != 3 || s.stdout != want {
			t.Errorf("%s: exit code %d, said %q, want 3 and %q\n%s", source, s.code, s.stdout, want, s.stderr)
		}
	}
	d.layered(fmt.Sprintf("door-dir-%d", os.Getpid()), program)
	info, err := os.Stat(victim)
	must(t, err)
	if list, err := os.ReadDir(victim); err != nil || len(list) > 0 || info.Mode().Perm() != 0o700 {
		t.Errorf("a directory that links lead to has mode %v and %d entries, %v", info.Mode(), len(list), err)
	}
}

// layered builds a template with one more file on top of another one, and runs that.
func (d *door) layered(base string, program []byte) {
	d.Helper()
	dir := d.TempDir()
	must(d.T, os.MkdirAll(filepath.Join(dir, "bin"), 0o755))
	must(d.T, os.WriteFile(filepath.Join(dir, "bin", "hello-again"), program, 0o755))
	id := base + "-more"
	d.must(0, "template", "build", id, "--from", base, "--add", dir)
	d.Cleanup(func() { d.must(0, "template", "rm", id) })
	for _, command := range []string{"hello", "hello-again"} {
		if s := d.custody("run", "--template", id, "--", command, "a"); s.code != 3 || s.stdout != "hello [a] \n" {
			d.Errorf("%s: exit code %d, %q\n%s", command, s.code, s.stdout, s.stderr)
		}
	}
	shown := d.must(0, "template", "show", id).stdout
	d.contains(shown, "dir +files", "on top of", base+", sha256-", "snapshot")
	var t template.Template
	if err := json.Unmarshal([]byte(d.must(0, "template", "show", "--json", id).stdout), &t); err != nil || t.From == nil || t.From.Name != base || !t.Added {
		d.Errorf("template show --json: %+v, %v", t, err)
	}
	d.contains(d.must(0, "template", "ls").stdout, "dir +files")
	d.contains(d.custody("template", "build", id+"x", "--from", id, "--packages", "jq").stderr, "packages cannot be installed on template "+id)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
