package guest

import (
	"bytes"
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

// bundles are the files in which distributions store all trusted certificates.
// Many programs use the first one on other distributions too.
var bundles = []string{
	channel.TrustBundle,                // Debian, Alpine, Arch
	"/etc/pki/tls/certs/ca-bundle.crt", // Fedora
	"/etc/ssl/ca-bundle.pem",           // openSUSE
	"/etc/ssl/cert.pem",                // some others
	"/etc/ssl/certs/ca-bundle.crt",     // NixOS
	"/etc/ca-certificates/extracted/tls-ca-bundle.pem",
}

// links are paths at which programs look for the host's certificate in addition to a bundle:
// OpenSSL, whose own file is missing in some Debian releases, and Debian's
// update-ca-certificates, which makes the bundle again when a package triggers it.
var links = []string{"/usr/lib/ssl/cert.pem", "/usr/local/share/ca-certificates/custody.crt"}

// maxBundle bounds the size of a bundle, in bytes. Those of distributions have some 230 KB.
const maxBundle = 4 << 20

// trustFiles are the files in which the cells' programs look for trusted certificates. They
// are made before the snapshot, with the certificates that the template trusts, and lack only
// the host's certificate, because making them would take most of the time of a wake.
type trustFiles struct {
	root int // descriptor of the cells' root
	own  *os.File
	all  *os.File
	java *os.File

	size  int64 // of all
	store *trust.JavaStore
	given []byte // the host's certificate, in PEM; empty: there is none
	err   error  // why they could not be made, for a wake that needs them
}

func newTrustFiles() (*trustFiles, error) {
	root, err := unix.Open(cellDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the cells' root: %w", err)
	}
	b := &trustFiles{root: root}
	if b.err = b.prepare(); b.err != nil {
		log.Printf("prepare the cells' trust: %v", b.err) // most runs do not need it
	}
	return b, nil
}

func (b *trustFiles) prepare() (err error) {
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
func (b *trustFiles) template() []byte {
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

// add adds a certificate, a PEM file, to those that the cells' programs trust. It must be called before the first workload.
func (b *trustFiles) add(file []byte) error {
	if b.err != nil {
		return b.err
	}
	added, err := certificate(file)
	if err != nil {
		return err
	}
	head, rest, at := b.store.Add(added)
	for _, w := range []struct {
		f       *os.File
		content []byte
		at      int64
	}{{b.own, file, 0}, {b.all, file, b.size}, {b.java, head, 0}, {b.java, rest, at}} {
		if _, err := w.f.WriteAt(w.content, w.at); err != nil {
			return err
		}
	}
	b.given = bytes.Clone(file)
	return nil
}

// certificate returns the DER of the only certificate in a PEM file.
func certificate(file []byte) ([]byte, error) {
	all := trust.Certificates(file)
	if len(all) != 1 {
		return nil, fmt.Errorf("%d certificates in PEM to be trusted, expected one", len(all))
	}
	return all[0], nil
}

// link makes a symbolic link to the host's certificate, if the directory exists and the path does not.
func (b *trustFiles) link(name string) error {
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

// open opens a path in the cells' root. Symbolic links are resolved inside it.
func (b *trustFiles) open(name string, flags int) (*os.File, error) {
	fd, err := unix.Openat2(b.root, name, &unix.OpenHow{
		Flags: uint64(flags | unix.O_CLOEXEC), Mode: mode(flags), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// mode returns the permissions for openat2, which refuses them unless it creates the file.
func mode(flags int) uint64 {
	if flags&unix.O_CREAT != 0 {
		return 0o644
	}
	return 0
}

// directory opens a directory, and makes it if it is missing.
func (b *trustFiles) directory(name string) (*os.File, error) {
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

// read reads a regular file. O_NONBLOCK prevents that it waits for a pipe.
func (b *trustFiles) read(name string) ([]byte, error) {
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

// create replaces a file's content, makes the file and its directories if they are missing, and returns the open file.
func (b *trustFiles) create(name string, content []byte) (*os.File, error) {
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
