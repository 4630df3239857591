package guest

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path"
	"slices"

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

// maxBundle is far more than the 230 KB that a distribution's has.
const maxBundle = 4 << 20

// beliefs is what the template trusts, read before the snapshot.
type beliefs struct {
	root   int // descriptor of the cells' root
	bundle []byte
	roots  [][]byte // its certificates
}

func readBeliefs() (*beliefs, error) {
	root, err := unix.Open(cellDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the cells' root: %w", err)
	}
	b := &beliefs{root: root}
	for _, name := range bundles {
		if b.bundle, err = b.read(name); err == nil {
			break
		}
		if !errors.Is(err, unix.ENOENT) {
			log.Printf("read %s: %v", name, err) // a template that trusts nobody
		}
	}
	b.roots = trust.Certificates(b.bundle)
	return b, nil
}

// add makes the cells believe in the certificates of a PEM file as well. No
// workload has run yet, so what is there is the template's.
func (b *beliefs) add(file []byte) error {
	added := trust.Certificates(file)
	if len(added) == 0 {
		return errors.New("no certificate in PEM to be trusted")
	}
	all := append(slices.Clip(b.bundle), '\n')
	for _, f := range []struct {
		name    string
		content []byte
	}{
		{channel.TrustFile, file},
		{channel.TrustBundle, append(all, file...)},
		{channel.TrustJava, trust.JavaStore(append(slices.Clip(b.roots), added...), channel.TrustJavaPassword)},
	} {
		if err := b.write(f.name, f.content); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	for _, der := range added {
		if err := b.link(der); err != nil {
			return err
		}
	}
	return b.survive(file)
}

// link gives a certificate the name under which OpenSSL looks for it.
func (b *beliefs) link(der []byte) error {
	name, err := trust.LinkName(der)
	if err != nil {
		return err
	}
	dir, err := b.directory(channel.TrustCerts)
	if err != nil {
		return fmt.Errorf("open %s: %w", channel.TrustCerts, err)
	}
	defer dir.Close()
	for i := range 10 { // others may have a subject of the same hash
		err = unix.Symlinkat(channel.TrustFile, int(dir.Fd()), fmt.Sprintf("%s.%d", name, i))
		if err != unix.EEXIST {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("link a certificate as %s/%s: %w", channel.TrustCerts, name, err)
	}
	return nil
}

// survive puts the certificates where Debian's update-ca-certificates takes
// them from when it makes the bundle anew, which installing a package can bring about.
func (b *beliefs) survive(file []byte) error {
	const local = "/usr/local/share/ca-certificates"
	dir, err := b.open(local, unix.O_PATH|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", local, err)
	}
	dir.Close()
	return b.write(local+"/custody.crt", file)
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

// write replaces what a file holds, and makes it and its directories where they are missing.
func (b *beliefs) write(name string, content []byte) error {
	dir, err := b.directory(path.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	f, err := b.open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}
