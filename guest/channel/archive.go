package channel

import (
	"archive/tar"
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

// An archive is a tar stream of what is in a directory, with clean names relative to it. The host passes none on as it comes, from either side:
// it writes a new one of the entries that it has checked.

// maxAfterEnd bounds what may follow the end of an archive, such as the padding of its last record, in bytes.
const maxAfterEnd = 1 << 20

// Packed is an entry of an archive that has passed.
type Packed struct {
	Name   audit.Text // relative to the directory
	Type   FileType
	Size   int64
	SHA256 string // of a regular file
}

// repacker passes an archive on.
type repacker struct {
	from io.Reader
	to   *tar.Writer
	each func(Packed) error // called with each entry that has passed; nil: not needed
	// check returns the name of an entry, or an error; empty: the entry is left out.
	check func(*tar.Header) (string, error)

	entries, names int
}

// pass passes on all entries and reads from to its end. The caller then closes to, if all came: an archive can end early between two entries.
func (p *repacker) pass() error {
	from := bufio.NewReader(p.from)
	in := tar.NewReader(from)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = p.entry(h, in)
		}
		if err != nil {
			return err
		}
	}
	if n, err := io.Copy(io.Discard, io.LimitReader(from, maxAfterEnd+1)); err != nil {
		return err
	} else if n > maxAfterEnd {
		return badArchive("more than %d bytes follow its end", maxAfterEnd)
	}
	return nil
}

func (p *repacker) entry(h *tar.Header, content io.Reader) error {
	name, err := p.check(h)
	if err != nil || name == "" {
		return err
	}
	if p.entries++; p.entries > maxEntries {
		return badArchive("it has more than %d entries: send several", maxEntries)
	}
	if p.names += len(name); p.names > maxNames {
		return badArchive("its names have more than %d bytes: send several", maxNames)
	}
	out := &tar.Header{Typeflag: h.Typeflag, Name: name, Mode: int64(perm(h)), ModTime: h.ModTime, Format: tar.FormatPAX}
	if y := h.ModTime.Year(); y < 0 || y > 9999 {
		out.ModTime = time.Time{}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		out.Name += "/"
	case tar.TypeReg:
		out.Size = h.Size
	case tar.TypeSymlink:
		out.Linkname = h.Linkname
	}
	if err := p.to.WriteHeader(out); err != nil {
		return err
	}
	sum := sha256.New()
	if out.Size > 0 {
		if _, err := io.Copy(io.MultiWriter(sum, p.to), content); err != nil {
			return err
		}
	}
	if p.each == nil {
		return nil
	}
	e := Packed{Name: audit.Text(name), Type: typesOfEntries[h.Typeflag], Size: out.Size}
	if h.Typeflag == tar.TypeReg {
		e.SHA256 = hex.EncodeToString(sum.Sum(nil))
	}
	return p.each(e)
}

// typesOfEntries are the types of entries that an archive of the guest can have.
var typesOfEntries = map[byte]FileType{
	tar.TypeDir: TypeDirectory, tar.TypeReg: TypeFile, tar.TypeSymlink: TypeSymlink, tar.TypeFifo: TypeFIFO, tar.TypeChar: TypeDevice, tar.TypeBlock: TypeDevice,
}

// EntryName returns the clean relative name of an entry that can be unpacked: a directory, a regular file or a symbolic link.
func EntryName(h *tar.Header) (string, error) {
	switch h.Typeflag {
	case tar.TypeDir, tar.TypeReg, tar.TypeSymlink:
		return packedName(h)
	}
	return "", hostile("entry %.200q of type %q", h.Name, h.Typeflag)
}

// packedName returns the name of an entry of the guest's archive.
func packedName(h *tar.Header) (string, error) {
	name, err := entryName(h)
	switch {
	case err != nil:
		return "", err
	case typesOfEntries[h.Typeflag] == "":
		return "", hostile("entry %.200q of type %q", name, h.Typeflag)
	case h.Typeflag != tar.TypeReg && h.Size != 0:
		return "", hostile("entry %.200q of type %q has %d bytes", name, h.Typeflag, h.Size)
	case h.Typeflag == tar.TypeSymlink && !possibleTarget(h.Linkname):
		return "", hostile("target of the link %.200q", name)
	}
	return name, nil
}

func possibleTarget(target string) bool {
	return target != "" && len(target) < maxPath && strings.IndexByte(target, 0) < 0
}

// sentName returns the name of an entry of a caller's archive, which tar makes with ./ before each name.
func sentName(h *tar.Header) (string, error) {
	name := strings.TrimSuffix(h.Name, "/")
	for strings.HasPrefix(name, "./") {
		name = strings.TrimLeft(name[2:], "/")
	}
	switch h.Typeflag {
	case tar.TypeXGlobalHeader:
		return "", nil
	case tar.TypeDir:
		if name == "" || name == "." {
			return "", nil
		}
	case tar.TypeReg:
		for key := range h.PAXRecords {
			if strings.HasPrefix(key, "GNU.sparse.") {
				return "", badArchive("%.200q is a sparse file: pack it as a plain one", h.Name)
			}
		}
	case tar.TypeSymlink:
		if !possibleTarget(h.Linkname) {
			return "", badArchive("%.200q is a symbolic link to %.200q, which none can have", h.Name, h.Linkname)
		}
	case tar.TypeLink:
		return "", badArchive("%.200q is a hard link: pack it as a file, for example with tar --hard-dereference", h.Name)
	default:
		return "", badArchive("%.200q is neither a regular file, a directory nor a symbolic link: leave it out", h.Name)
	}
	if !clean(name) {
		return "", badArchive("%.200q is no relative path without \"..\", or is too long", h.Name)
	}
	return name, nil
}

// badArchive is an error of a caller's archive; of the guest's it is one of the protocol.
func badArchive(format string, args ...any) error {
	return &FileError{Code: FileArchived, Text: fmt.Sprintf(format, args...)}
}

// pack passes the guest's archive on to the caller.
func (f *fileCall) pack() error {
	var r fileReport
	if err := readFrame(f.ctl, &r, maxReport); err != nil {
		return err
	}
	if done, err := f.take(&r); err != nil || done {
		return errors.Join(err, early(done && err == nil))
	}
	out := localWriter{f.transfer.Out}
	p := &repacker{from: f.data, to: tar.NewWriter(out), each: f.packed, check: packedName}
	err := p.pass()
	bad, mine := (*FileError)(nil), (*localError)(nil)
	switch {
	case errors.As(err, &mine), errors.Is(err, ErrHostile):
		return err
	case errors.As(err, &bad):
		return hostile("archive: %s", bad.Text)
	}
	f.data.Close()
	why := f.listen() // the guest reports why it could not go on
	switch {
	case errors.As(why, &bad):
		p.comment(bad.Error())
		return why
	case why != nil:
		return why
	case err != nil:
		return hostile("archive: %w", err)
	}
	return p.to.Close()
}

// comment tells the reader of an archive why it has no end, unless that is in the middle of an entry. Package client reads it.
func (p *repacker) comment(text string) {
	_ = p.to.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": text}})
}

// unpack passes the caller's archive on to the guest. An error of the archive is the caller's.
func (f *fileCall) unpack(to io.Writer) error {
	p := &repacker{from: localReader{f.transfer.In}, to: tar.NewWriter(to), each: f.packed, check: sentName}
	err := p.pass()
	if err == nil {
		err = p.to.Close()
	}
	switch bad := (*FileError)(nil); {
	case errors.As(err, &bad):
		bad.Path = f.request.Path
		return &localError{bad}
	case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong), errors.Is(err, io.ErrUnexpectedEOF): // not that of the caller's reader, which is a localError
		return &localError{&FileError{Code: FileArchived, Path: f.request.Path, Text: "it is no tar archive, or ends early: pack it again"}}
	}
	return err
}

func (f *fileCall) packed(e Packed) error {
	if f.transfer.Packed == nil {
		return nil
	}
	if err := f.transfer.Packed(e); err != nil {
		return &localError{err}
	}
	return nil
}

// within reports whether a path of the guest is below the request's, as that of an entry of an archive.
func within(p, dir audit.Text) bool {
	below, ok := strings.CutPrefix(string(p), strings.TrimRight(path.Clean(string(dir)), "/")+"/")
	return ok && clean(below)
}
