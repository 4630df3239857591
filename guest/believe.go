package guest

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/guest/trust"
)

// bundles are the files in which distributions keep what they trust, all in
// one. The first is also where many programs look on distributions not their own.
var bundles = []string{
	channel.TrustBundle,                // Debian, Alpine, Arch
	"/etc/pki/tls/certs/ca-bundle.crt", // Fedora
	"/etc/ssl/ca-bundle.pem",           // openSUSE
	"/etc/ssl/cert.pem",                // some others
	"/etc/ssl/certs/ca-bundle.crt",     // NixOS
	"/etc/ca-certificates/extracted/tls-ca-bundle.pem",
}

// links lead to the host's certificate where it is looked for beside a list:
// by OpenSSL, whose own file some Debians leave away, and by Debian's
// update-ca-certificates, which makes the list again when a package has it do so.
var links = []string{"/usr/lib/ssl/cert.pem", "/usr/local/share/ca-certificates/custody.crt"}

// maxBundle is far more than the 230 KB that a distribution's has.
const maxBundle = 4 << 20

// beliefs are the files by which the cells' programs know what to trust. They
// are made before the snapshot, with what the template trusts, and lack only
// the host's certificate; most of a wake's time would go into making them.
type beliefs struct {
	root int // descriptor of the cells' root
	own  *os.File
	all  *os.File
	java *os.File

	size  int64 // of all
	store *trust.JavaStore
	err   error // why they could not be made, for a wake that needs them
}

func newBeliefs() (*beliefs, error) {
	root, err := unix.Open(cellDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the cells' root: %w", err)
	}
	b := &beliefs{root: root}
	if b.err = b.prepare(); b.err != nil {
		log.Printf("prepare the cells' trust: %v", b.err) // most runs do without it
	}
	return b, nil
}

func (b *beliefs) prepare() (err error) {
	bundle := b.template()
	if len(bundle) > 0 && bundle[len(bundle)-1] != '\n' {
		bundle = append(bundle, '\n')
	}
	b.size = int64(len(bundle))
	b.store = trust.NewJavaStore(trust.Certificates(bundle), channel.TrustJavaPassword)
	if b.own, err = b.create(channel.TrustFile, nil); err != nil {
		return err
	}
	if b.all, err = b.create(channel.TrustBundle, bundle); err != nil {
		return err
	}
	if b.java, err = b.create(channel.TrustJava, b.store.Bytes()); err != nil {
		return err
	}
	for _, link := range links {
		if err := b.link(link); err != nil {
			return fmt.Errorf("link %s: %w", link, err)
		}
	}
	return nil
}

// template returns what the template trusts, in PEM.
func (b *beliefs) template() []byte {
	for _, name := range bundles {
		bundle, err := b.read(name)
		if err == nil {
			return bundle
		}
		if !errors.Is(err, unix.ENOENT) {
			log.Printf("read %s: %v", name, err)
		}
	}
	return nil
}

// add makes the cells believe in one more certificate, a PEM file. No workload has run yet.
func (b *beliefs) add(file []byte) error {
	if b.err != nil {
		return b.err
	}
	added := trust.Certificates(file)
	if len(added) != 1 {
		return fmt.Errorf("%d certificates in PEM to be trusted, expected one", len(added))
	}
	head, rest, at := b.store.Add(added[0])
	for _, w := range []struct {
		f       *os.File
		content []byte
		at      int64
	}{{b.own, file, 0}, {b.all, file, b.size}, {b.java, head, 0}, {b.java, rest, at}} {
		if _, err := w.f.WriteAt(w.content, w.at); err != nil {
			return err
		}
	}
	return nil
}

// link makes a path lead to what the host would have trusted, where its directory is and it is not.
func (b *beliefs) link(name string) error {
	dir, err := b.open(path.Dir(name), unix.O_PATH|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Symlinkat(channel.TrustFile, int(dir.Fd()), path.Base(name)); err != unix.EEXIST {
		return err
	}
	return nil
}

// open opens a path as the cells see it: no link in it leads out of their root.
func (b *beliefs) open(name string, flags int) (*os.File, error) {
	fd, err := unix.Openat2(b.root, name, &unix.OpenHow{
		Flags: uint64(flags | unix.O_CLOEXEC), Mode: mode(flags), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// mode: openat2 refuses permissions for what is not to be created.
func mode(flags int) uint64 {
	if flags&unix.O_CREAT != 0 {
		return 0o644
	}
	return 0
}

// directory opens a directory, and makes it first where it is missing.
func (b *beliefs) directory(name string) (*os.File, error) {
	f, err := b.open(name, unix.O_PATH|unix.O_DIRECTORY)
	if !errors.Is(err, unix.ENOENT) || name == "/" {
		return f, err
	}
	parent, err := b.directory(path.Dir(name))
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	if err := unix.Mkdirat(int(parent.Fd()), path.Base(name), 0o755); err != nil {
		return nil, err
	}
	return b.open(name, unix.O_PATH|unix.O_DIRECTORY)
}

// read reads an ordinary file. O_NONBLOCK is for what turns out to be none.
func (b *beliefs) read(name string) ([]byte, error) {
	f, err := b.open(name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("not an ordinary file"))
	}
	content, err := io.ReadAll(io.LimitReader(f, maxBundle+1))
	if err == nil && len(content) > maxBundle {
		err = fmt.Errorf("larger than %d bytes", maxBundle)
	}
	return content, err
}

// create replaces what a file holds, makes it and its directories where they are missing, and leaves it open.
func (b *beliefs) create(name string, content []byte) (*os.File, error) {
	dir, err := b.directory(path.Dir(name))
	if err != nil {
		return nil, fmt.Errorf("make the directory of %s: %w", name, err)
	}
	defer dir.Close()
	f, err := b.open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	if _, err := f.Write(content); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
