package template

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// OCI is a container image: an archive that `docker save` wrote, or a folder
// in the OCI image layout with one image for this platform.
type OCI struct{ Path string }

// Kind implements Source.
func (OCI) Kind() string { return "oci" }

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

// maxImage bounds what an image may unpack to.
const maxImage = 32 << 30

// unpack writes a flattened image into root. Nothing is written outside of
// root, whatever names and links the archive holds (os.Root).
func unpack(ctx context.Context, r io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	archive := tar.NewReader(r)
	var total int64
	var times []*tar.Header
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
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
		h.Name = strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if h.Name == "" {
			continue
		}
		if err := unpackEntry(root, h, archive); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
		if h.Typeflag == tar.TypeReg {
			times = append(times, h)
		}
	}
	for _, h := range times {
		if err := root.Chtimes(h.Name, h.ModTime, h.ModTime); err != nil {
			return err
		}
	}
	return nil
}

func unpackEntry(root *os.Root, h *tar.Header, r io.Reader) error {
	if parent := path.Dir(h.Name); parent != "." {
		if err := root.MkdirAll(parent, 0o755); err != nil {
			return err
		}
	}
	var err error
	switch h.Typeflag {
	case tar.TypeDir:
		err = root.MkdirAll(h.Name, 0o755)
	case tar.TypeReg:
		root.Remove(h.Name)
		err = writeFrom(root, h.Name, r)
	case tar.TypeSymlink:
		root.Remove(h.Name)
		return errors.Join(root.Symlink(h.Linkname, h.Name), root.Lchown(h.Name, h.Uid, h.Gid))
	case tar.TypeLink:
		root.Remove(h.Name)
		return root.Link(strings.TrimPrefix(path.Clean("/"+h.Linkname), "/"), h.Name)
	default:
		return nil // devices and the like: the guest has its own
	}
	if err != nil {
		return err
	}
	if err := root.Lchown(h.Name, h.Uid, h.Gid); err != nil {
		return err
	}
	return root.Chmod(h.Name, h.FileInfo().Mode()&(os.ModePerm|os.ModeSetuid|os.ModeSetgid|os.ModeSticky))
}

func writeFrom(root *os.Root, name string, r io.Reader) error {
	f, err := root.OpenFile(filepath.FromSlash(name), os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

func fitsHost(p *v1.Platform) bool {
	return p != nil && p.OS == "linux" && p.Architecture == runtime.GOARCH
}
