package template

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

// The userland and the guest kernel come from this release of Debian. The
// sensor's programs were verified against its kernel.
const debianSuite = "bookworm"

// guestModules are the kernel modules that the guest loads, in this order. If the kernel has one
// built in, its package has no file for it.
var guestModules = []string{
	"virtio_ring", "virtio", "virtio_mmio", "failover", "net_failover", "virtio_net",
	"virtio_blk", "virtio_console", "libcrc32c", "erofs", "overlay",
	"crc16", "mbcache", "jbd2", "ext4", "sha256-ssse3",
	"vsock", "vmw_vsock_virtio_transport_common", "vmw_vsock_virtio_transport", // Firecracker's channel
}

// kernel writes the guest kernel to the directory out and its modules to a directory in work.
// A template other than base uses base's kernel, if base exists.
func (s Store) kernel(ctx context.Context, name, work, out string) (modules, release string, err error) {
	base, err := s.read(filepath.Join(s.Dir, "names", "base"))
	if name == "base" || err != nil {
		return s.fetchKernel(ctx, work, out)
	}
	if err := base.verify(ctx, "kernel", "initrd"); err != nil {
		return "", "", err
	}
	if err := os.Link(filepath.Join(base.dir, "kernel"), filepath.Join(out, "kernel")); err != nil {
		return "", "", err
	}
	modules = filepath.Join(work, "modules")
	return modules, base.Release, readModules(filepath.Join(base.dir, "initrd"), modules)
}

// fetchKernel extracts the kernel and its modules from the distribution's package, without installing it.
func (s Store) fetchKernel(ctx context.Context, work, out string) (modules, release string, err error) {
	fmt.Fprintln(s.Log, "fetching the guest kernel")
	debs, unpacked := filepath.Join(work, "debs"), filepath.Join(work, "kernel")
	if err := os.Mkdir(debs, 0o755); err != nil {
		return "", "", err
	}
	meta := "linux-image-cloud-" + runtime.GOARCH
	fetch := `cd "` + debs + `" && export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" && ` +
		`apt-get -q download "$(apt-cache depends ` + meta + ` | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)"`
	err = tool(ctx, "mmdebstrap", "--variant=custom", "--mode=root", "--format=directory", "--customize-hook="+fetch,
		"--skip=check/empty,cleanup", debianSuite, filepath.Join(work, "apt"))
	if err != nil {
		return "", "", fmt.Errorf("fetch the guest kernel: %w", err)
	}
	found, err := filepath.Glob(filepath.Join(debs, "linux-image-*.deb"))
	if err != nil || len(found) != 1 {
		return "", "", fmt.Errorf("fetch the guest kernel: expected one package, found %d", len(found))
	}
	if err := tool(ctx, "dpkg-deb", "-x", found[0], unpacked); err != nil {
		return "", "", err
	}
	root, err := os.OpenRoot(unpacked)
	if err != nil {
		return "", "", err
	}
	defer root.Close()
	images, err := fs.Glob(root.FS(), "boot/vmlinuz-*")
	if err != nil || len(images) != 1 {
		return "", "", fmt.Errorf("%s holds %d kernels, expected one", filepath.Base(found[0]), len(images))
	}
	release = strings.TrimPrefix(path.Base(images[0]), "vmlinuz-")
	if err := copyFile(root.FS(), images[0], filepath.Join(out, "kernel"), 0o444); err != nil {
		return "", "", err
	}
	modules = filepath.Join(work, "modules")
	return modules, release, copyModules(root.FS(), path.Join("lib/modules", release), modules)
}

// copyModules copies the modules that the guest needs, and writes the order in which it loads them.
func copyModules(in fs.FS, from, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	files := map[string]string{}
	err := fs.WalkDir(in, from, func(name string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".ko") {
			files[strings.TrimSuffix(path.Base(name), ".ko")] = name
		}
		return err
	})
	if err != nil {
		return err
	}
	var order []string
	for _, name := range guestModules {
		file, ok := files[name]
		if !ok {
			continue
		}
		if err := copyFile(in, file, filepath.Join(to, name+".ko"), 0o444); err != nil {
			return err
		}
		order = append(order, name+".ko")
	}
	return os.WriteFile(filepath.Join(to, "order"), []byte(strings.Join(order, "\n")+"\n"), 0o444)
}
