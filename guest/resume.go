package guest

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"path"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/guest/trust"
)

// machine is what distinguishes a machine from others.
type machine struct{ hostname, id string }

// hosts returns the machine's line in /etc/hosts.
func (m machine) hosts() string { return "127.0.1.1\t" + m.hostname + "\n" }

// resume gives the cells of a guest that was suspended another host name, machine ID and certificate, if they differ. Their processes are
// frozen.
func (st *stage) resume(id channel.Identity) error {
	if m := (machine{id.Hostname, id.MachineID}); m != st.name {
		if err := st.rename(m); err != nil {
			return err
		}
	}
	return st.trustFiles.exchange(id.Trust)
}

// rename changes the host name and the machine ID. What the workload has changed in /etc/hosts stays, except the line with the old name.
func (st *stage) rename(m machine) error {
	if err := unix.Sethostname([]byte(m.hostname)); err != nil {
		return fmt.Errorf("set the host name %q: %w", m.hostname, err)
	}
	if err := st.block.Rename(m.hostname); err != nil {
		return err
	}
	hosts := make([]byte, maxIdentity)
	n, err := unix.Pread(st.identity[1].fd, hosts, 0)
	if err != nil {
		return fmt.Errorf("read /etc/hosts: %w", err)
	}
	hosts = bytes.ReplaceAll(hosts[:n], []byte(st.name.hosts()), []byte(m.hosts()))
	for i, content := range [][]byte{[]byte(m.hostname + "\n"), hosts, []byte(m.id + "\n")} {
		_, err := unix.Pwrite(st.identity[i].fd, content, 0)
		if err == nil {
			err = unix.Ftruncate(st.identity[i].fd, int64(len(content)))
		}
		if err != nil {
			return fmt.Errorf("write /etc/%s: %w", identity[i], err)
		}
	}
	st.name = m
	return nil
}

// exchange replaces the host's certificate in the files that programs read; an empty file is none. The workload can have changed these
// files: certificates that it has added to the bundle stay. What it has put in the place of one of them and cannot be written is left alone.
func (b *trustFiles) exchange(file []byte) error {
	if bytes.Equal(file, b.given) {
		return nil
	}
	if b.err != nil {
		return b.err
	}
	if len(file) > 0 {
		if _, err := certificate(file); err != nil {
			return err
		}
	}
	if err := b.overwrite(file); err != nil {
		log.Printf("replace the certificate that the cells trust: %v", err)
	}
	b.given = bytes.Clone(file)
	return nil
}

// overwrite writes the files with another certificate in place of b.given.
func (b *trustFiles) overwrite(file []byte) error {
	own := b.rewrite(channel.TrustFile, file)
	bundle, err := b.read(channel.TrustBundle)
	if err != nil {
		return errors.Join(own, fmt.Errorf("read %s: %w", channel.TrustBundle, err))
	}
	if len(b.given) > 0 {
		bundle = bytes.ReplaceAll(bundle, b.given, nil)
	}
	if len(bundle) > 0 && bundle[len(bundle)-1] != '\n' {
		bundle = append(bundle, '\n')
	}
	bundle = append(bundle, file...)
	store := trust.NewJavaStore(trust.Certificates(bundle), channel.TrustJavaPassword)
	return errors.Join(own, b.rewrite(channel.TrustBundle, bundle), b.rewrite(channel.TrustJava, store.Bytes()))
}

// rewrite writes a file without freeing its blocks first, so that it succeeds on a full disk. It makes a missing file.
func (b *trustFiles) rewrite(name string, content []byte) error {
	dir, err := b.directory(path.Dir(name))
	if err != nil {
		return fmt.Errorf("make the directory of %s: %w", name, err)
	}
	defer dir.Close()
	f, err := b.open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_NONBLOCK)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, fmt.Errorf("%s is not a regular file", name))
	}
	if _, err := f.WriteAt(content, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(content)))
}
