package template

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"
)

// OCI is a container image: an archive written by `docker save`, or a directory
// in the OCI image layout with one image for this platform.
type OCI struct{ Path string }

// Kind implements Source.
func (OCI) Kind() string { return "oci" }

// Describe implements Source.
func (o OCI) Describe(t *Template) { t.Source = o.Kind() }

// Fill implements Source.
func (o OCI) Fill(ctx context.Context, root string) ([]string, error) {
	img, err := o.open()
	if err != nil {
		return nil, fmt.Errorf("read the image %s: %w", o.Path, err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the image's configuration: %w", err)
	}
	flat := mutate.Extract(img)
	defer flat.Close()
	if err := unpack(ctx, flat, root); err != nil {
		return nil, fmt.Errorf("unpack the image: %w", err)
	}
	return config.Config.Env, nil
}

func (o OCI) open() (v1.Image, error) {
	info, err := os.Stat(o.Path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return tarball.ImageFromPath(o.Path, nil)
	}
	l, err := layout.FromPath(o.Path)
	if err != nil {
		return nil, err
	}
	index, err := l.ImageIndex()
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, d := range manifest.Manifests {
		if d.MediaType.IsImage() && (len(manifest.Manifests) == 1 || fitsHost(d.Platform)) {
			return l.Image(d.Digest)
		}
	}
	return nil, errors.New("the layout has no image for this platform")
}

// maxImage bounds the total size of an image's files, in bytes.
const maxImage = 32 << 30

// unpack extracts a flattened image into dir. Names and links in the archive cannot
// make it write outside of dir (os.Root).
func unpack(ctx context.Context, r io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	archive := tar.NewReader(r)
	var total int64
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if total += h.Size; total > maxImage {
			return fmt.Errorf("it unpacks to more than %d GiB", maxImage>>30)
		}
		h.Name = inside(h.Name)
		if h.Name == "" {
			continue
		}
		if err := unpackEntry(root, h, archive); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

// inside returns a path of an archive, relative to the archive's root.
func inside(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

func unpackEntry(root *os.Root, h *tar.Header, r io.Reader) error {
	if parent := path.Dir(h.Name); parent != "." {
		if err := root.MkdirAll(parent, 0o755); err != nil {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := makeDir(root, h.Name); err != nil {
			return err
		}
		return withFile(root, h.Name, os.O_RDONLY|unix.O_DIRECTORY, func(f *os.File) error { return own(f, h) })
	case tar.TypeReg:
		root.Remove(h.Name)
		err := withFile(root, h.Name, os.O_CREATE|os.O_WRONLY|os.O_EXCL, func(f *os.File) error {
			_, err := io.Copy(f, r)
			return errors.Join(err, own(f, h))
		})
		if err != nil {
			return err
		}
		return root.Chtimes(h.Name, h.ModTime, h.ModTime)
	case tar.TypeSymlink:
		root.Remove(h.Name)
		return errors.Join(root.Symlink(h.Linkname, h.Name), root.Lchown(h.Name, h.Uid, h.Gid))
	case tar.TypeLink:
		root.Remove(h.Name)
		return root.Link(inside(h.Linkname), h.Name)
	}
	return nil // devices and similar files are skipped: the guest makes its own
}

// makeDir makes a directory unless it exists. It replaces a file or link of that name.
func makeDir(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err == nil && info.IsDir() {
		return nil
	}
	if err == nil {
		err = root.Remove(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return root.Mkdir(name, 0o755)
}

// withFile opens a file, calls use with it and closes it. The name of a directory must not be a link.
func withFile(root *os.Root, name string, flags int, use func(*os.File) error) error {
	f, err := root.OpenFile(name, flags, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(use(f), f.Close())
}

// own sets a file's owner and mode to those in the archive.
func own(f *os.File, h *tar.Header) error {
	if err := f.Chown(h.Uid, h.Gid); err != nil {
		return err
	}
	return f.Chmod(h.FileInfo().Mode() & (os.ModePerm | os.ModeSetuid | os.ModeSetgid | os.ModeSticky))
}

func fitsHost(p *v1.Platform) bool {
	return p != nil && p.OS == "linux" && p.Architecture == runtime.GOARCH
}
