package template

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/scratch"
)

// Driver makes and restores snapshots.
type Driver interface {
	vmm.Driver
	// Fingerprint identifies what snapshots depend on: a snapshot can be restored only with the fingerprint that it was made with.
	Fingerprint() string
}

// Shape is the size of a machine. Each shape has its own snapshot.
type Shape struct {
	CPUs   int
	Memory int64 // bytes
	Disk   int64 // bytes of the scratch disk, which the guest has mounted when the snapshot is taken
}

// shapeFile is the content of shape.json.
type shapeFile struct {
	Format      int    `json:"format"` // version of this file and of the kind of its digests
	Template    string `json:"template"`
	Tier        string `json:"tier"`
	Fingerprint string `json:"fingerprint"`
	CPUs        int    `json:"cpus"`
	Memory      int64  `json:"memory"`
	MemorySum   string `json:"memory_sha256"`
	StateSum    string `json:"state_sha256"`
	DiskSum     string `json:"disk_sha256"`
}

// sums returns the digests of the files, by name.
func (f *shapeFile) sums() map[string]*string {
	return map[string]*string{"memory": &f.MemorySum, "state": &f.StateSum, "disk": &f.DiskSum}
}

// shapeFormat is the Format of shape.json: since 2 the digests are those of sparseDigest.
const shapeFormat = 2

// Image returns a snapshot for machines of this shape, after it has verified its
// digests. The first call for a shape boots a machine and takes the snapshot.
// The caller closes the image.
func (t Template) Image(ctx context.Context, d Driver, s Shape) (vmm.Image, error) {
	dir := t.shapeDir(d, s)
	if !t.hasSnapshot(dir, d, s) {
		if err := t.snapshot(ctx, d, s); err != nil {
			return vmm.Image{}, fmt.Errorf("template %s: snapshot: %w", t.Name, err)
		}
	}
	if err := t.verifySnapshot(ctx, dir); err != nil {
		return vmm.Image{}, err
	}
	img := t.coldImage()
	var err error
	if img.Root, err = regular.Open(filepath.Join(t.dir, "root.erofs")); err != nil {
		return vmm.Image{}, err
	}
	if img.Memory, err = regular.Open(filepath.Join(dir, "memory")); err != nil {
		return vmm.Image{}, errors.Join(err, img.Close())
	}
	if img.Disk, err = regular.Open(filepath.Join(dir, "disk")); err != nil {
		return vmm.Image{}, errors.Join(err, img.Close())
	}
	if img.State, err = regular.Open(filepath.Join(dir, "state")); err != nil {
		return vmm.Image{}, errors.Join(err, img.Close())
	}
	return img, nil
}

// Cold returns an image for a cold boot, with memory, which must be empty, as the machine's memory. The image
// owns the file; if Cold fails, it closes it.
func (t Template) Cold(ctx context.Context, memory *os.File, s Shape) (vmm.Image, error) {
	img := t.coldImage()
	img.Memory = memory
	if err := t.verify(ctx, "kernel", "initrd", "root.erofs"); err != nil {
		return vmm.Image{}, errors.Join(err, img.Close())
	}
	var err error
	if img.Root, err = regular.Open(filepath.Join(t.dir, "root.erofs")); err != nil {
		return vmm.Image{}, errors.Join(err, img.Close())
	}
	return img, memory.Truncate(s.Memory)
}

func (t Template) coldImage() vmm.Image {
	return vmm.Image{Kernel: filepath.Join(t.dir, "kernel"), Initrd: filepath.Join(t.dir, "initrd"), Guest: t.store.Guest}
}

func (t Template) shapeDir(d Driver, s Shape) string {
	return filepath.Join(t.dir, "shapes", fmt.Sprintf("%s-%d-%d-%d", d.Tier(), s.CPUs, s.Memory>>20, s.Disk>>20))
}

func (t Template) readShape(dir string) (shapeFile, error) {
	var f shapeFile
	b, err := regular.ReadFile(filepath.Join(dir, "shape.json"))
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return f, fmt.Errorf("%w: shape.json: %w", ErrBroken, err)
	}
	return f, nil
}

// Snapshot is a snapshot that a template has.
type Snapshot struct {
	Tier   string `json:"tier"`
	CPUs   int    `json:"cpus"`
	Memory int64  `json:"memory"` // bytes
	Disk   int64  `json:"disk"`   // bytes of the scratch disk
}

// Snapshots returns the template's snapshots in the order of tier and size. It does not check that this host can restore them.
func (t Template) Snapshots() ([]Snapshot, error) {
	dirs, err := filepath.Glob(filepath.Join(t.dir, "shapes", "*"))
	if err != nil {
		return nil, err
	}
	all := []Snapshot{}
	for _, dir := range dirs {
		f, err := t.readShape(dir)
		if err != nil || f.Template != t.Digest() {
			continue // not finished, or made before the template was renewed
		}
		s := Snapshot{Tier: f.Tier, CPUs: f.CPUs, Memory: f.Memory}
		if disk, err := os.Stat(filepath.Join(dir, "disk")); err == nil {
			s.Disk = disk.Size()
		}
		all = append(all, s)
	}
	return all, nil
}

// SnapshotDigest identifies the snapshot that Image returned for this driver and shape: its files, the machine, and the monitor that took it.
func (t Template) SnapshotDigest(d Driver, s Shape) (string, error) {
	f, err := t.readShape(t.shapeDir(d, s))
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(f)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return "sha256-" + hex.EncodeToString(sum[:]), nil
}

// hasSnapshot reports whether dir contains a snapshot that this driver can restore.
func (t Template) hasSnapshot(dir string, d Driver, s Shape) bool {
	f, err := t.readShape(dir)
	return err == nil && f.Format == shapeFormat && f.Fingerprint == d.Fingerprint() && f.Template == t.Digest()
}

func (t Template) verifySnapshot(ctx context.Context, dir string) error {
	f, err := t.readShape(dir)
	if err != nil {
		return fmt.Errorf("%w: template %s: %w", ErrBroken, t.Name, err)
	}
	rel, err := filepath.Rel(t.dir, dir)
	if err != nil {
		return err
	}
	if err := t.verify(ctx, "root.erofs"); err != nil {
		return err
	}
	for name, sum := range f.sums() {
		if err := t.verifyFile(ctx, filepath.Join(rel, name), *sum, hashSparse); err != nil {
			return err
		}
	}
	return nil
}

// snapshot boots a machine, waits until the guest is ready, and stores its snapshot.
func (t Template) snapshot(ctx context.Context, d Driver, s Shape) error {
	unlock, err := t.store.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	dir := t.shapeDir(d, s)
	if t.hasSnapshot(dir, d, s) {
		return nil // another process made it while we waited
	}
	if err := t.store.sweep(); err != nil { // removes the files of a process that was killed while it made one
		return err
	}
	fmt.Fprintf(t.store.Log, "booting template %s once to take its snapshot (%s, %d CPU, %d MiB)\n", t.Name, d.Tier(), s.CPUs, s.Memory>>20)
	work, err := os.MkdirTemp(t.store.Dir, "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := t.bootAndSave(ctx, d, s, work); err != nil {
		return err
	}
	f := shapeFile{
		Format: shapeFormat, Template: t.Digest(), Tier: d.Tier(), Fingerprint: d.Fingerprint(), CPUs: s.CPUs, Memory: s.Memory,
	}
	err = t.store.phase(ctx, "hashing the snapshot", saveTimeout, func(ctx context.Context) error {
		for name, sum := range f.sums() {
			var err error
			if *sum, err = makeSparse(ctx, filepath.Join(work, name)); err != nil {
				return err
			}
		}
		return errors.Join(writeJSON(filepath.Join(work, "shape.json"), f), syncTree(work))
	})
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Dir(dir), 0o700), os.Rename(work, dir)); err != nil {
		return err
	}
	return t.storeSnapshotStamps(dir, f)
}

// storeSnapshotStamps stores the stamps of the files of a snapshot that was just made.
func (t Template) storeSnapshotStamps(dir string, f shapeFile) error {
	rel, err := filepath.Rel(t.dir, dir)
	if err != nil {
		return err
	}
	for name, sum := range f.sums() {
		if err := storeStamp(t.dir, filepath.Join(rel, name), filepath.Join(dir, name), *sum); err != nil {
			return err
		}
	}
	return nil
}

func (t Template) bootAndSave(ctx context.Context, d Driver, s Shape, work string) (err error) {
	memory, err := os.OpenFile(filepath.Join(work, "memory"), os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	img, err := t.Cold(ctx, memory, s)
	if err != nil {
		return err
	}
	defer img.Close()
	disk, err := scratch.New(ctx, work, t.store.Blanks(), s.Disk)
	if err != nil {
		return err
	}
	defer disk.Close()
	state, err := os.OpenFile(filepath.Join(work, "state"), os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer state.Close()
	var vm vmm.VM
	err = t.store.phase(ctx, "booting the guest", bootTimeout, func(ctx context.Context) (err error) {
		vm, err = d.Start(ctx, vmm.Machine{ID: "template-" + rand.Text()[:8], Image: img, CPUs: s.CPUs, Memory: s.Memory, Scratch: disk})
		if err != nil {
			return err
		}
		if err := channel.AwaitReady(ctx, vm.Channel()); err != nil {
			return fmt.Errorf("the guest did not become ready: %w", err)
		}
		return nil
	})
	defer func() {
		if vm != nil {
			err = errors.Join(err, vm.Destroy(context.WithoutCancel(ctx)))
		}
	}()
	if err != nil {
		return err
	}
	return t.store.phase(ctx, "saving the guest's memory", saveTimeout, func(ctx context.Context) error {
		if err := vm.Snapshot(ctx, state); err != nil {
			return err
		}
		return saveDisk(disk, filepath.Join(work, "disk"))
	})
}

// saveDisk copies the scratch disk of the frozen machine to path.
func saveDisk(disk *os.File, path string) error {
	info, err := disk.Stat()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(info.Size()), scratch.Copy(f, disk), f.Close())
}
