package channel

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/hashicorp/yamux"

	"github.com/custody-project/custody/audit"
)

// answers plays a guest that answers an operation with any bytes.
func answers(t *testing.T, reports, data []byte, r FileRequest, out io.Writer) error {
	t.Helper()
	c, _ := misbehaving(t, func(s *yamux.Session) {
		s.Accept() // of events
		ctl, err := s.Accept()
		if err != nil {
			return
		}
		var h hello
		readFrame(ctl, &h, maxHello)
		content, err := s.Accept()
		if err != nil {
			return
		}
		ctl.Write(reports)
		content.Write(data)
		content.Close()
		ctl.Close()
	})
	_, err := c.File(timeout(t), r, FileTransfer{In: strings.NewReader(""), Out: out, Entry: func(FileInfo) error { return nil }})
	return err
}

func frames(reports ...fileReport) (b []byte) {
	for _, r := range reports {
		b = append(b, frameOf(r)...)
	}
	return b
}

// guestArchive returns an archive of entries of size 0.
func guestArchive(entries ...tar.Header) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		w.WriteHeader(&h)
		w.Write(make([]byte, h.Size))
	}
	w.Close()
	return b.Bytes()
}

// TestHostileFiles: a guest that reports what no operation on a file has is cut off.
func TestHostileFiles(t *testing.T) {
	info, done := fileReport{Info: &FileInfo{Name: "f", Type: TypeFile, Size: 3}}, fileReport{Done: true}
	dir := fileReport{Info: &FileInfo{Name: "d", Type: TypeDirectory}}
	described := func(change func(*FileInfo)) []byte {
		i := *info.Info
		change(&i)
		return frames(fileReport{Info: &i, Done: true})
	}
	listed := func(names ...audit.Text) []byte {
		var r fileReport
		for _, n := range names {
			r.Entries = append(r.Entries, FileInfo{Name: n, Type: TypeFile})
		}
		return frames(dir, r, done)
	}
	stat, list, read, pack := FileRequest{Op: FileStat, Path: "/f"}, FileRequest{Op: FileList, Path: "/d", After: "a", Max: 2}, FileRequest{Op: FileRead, Path: "/f"}, FileRequest{Op: FilePack, Path: "/d"}
	for name, c := range map[string]struct {
		request FileRequest
		reports []byte
		data    []byte
	}{
		"garbage":               {stat, []byte("\x00\x00\x00\x05hello"), nil},
		"too long":              {stat, []byte{0xff, 0xff, 0xff, 0xff}, nil},
		"unknown type":          {stat, described(func(i *FileInfo) { i.Type = "x" }), nil},
		"name with a slash":     {stat, described(func(i *FileInfo) { i.Name = "a/b" }), nil},
		"name with NUL":         {stat, described(func(i *FileInfo) { i.Name = "a\x00b" }), nil},
		"long name":             {stat, described(func(i *FileInfo) { i.Name = audit.Text(strings.Repeat("x", 256)) }), nil},
		"no name":               {stat, described(func(i *FileInfo) { i.Name = "" }), nil},
		"negative size":         {stat, described(func(i *FileInfo) { i.Size = -1 }), nil},
		"mode":                  {stat, described(func(i *FileInfo) { i.Mode = 1 << 20 }), nil},
		"target with NUL":       {stat, described(func(i *FileInfo) { i.Target = "\x00" }), nil},
		"unknown error":         {stat, frames(fileReport{Error: &FileError{Code: "x"}, Done: true}), nil},
		"entries":               {stat, listed("b"), nil},
		"not after":             {list, listed("a"), nil},
		"twice":                 {list, listed("b", "b"), nil},
		"descending":            {list, listed("c", "b"), nil},
		"one too many":          {list, listed("b", "c", "d"), nil},
		"longer than announced": {read, frames(info, done), []byte("four")},
		"end without content":   {read, frames(fileReport{Info: info.Info, Done: true}), nil},
		"no archive":            {pack, frames(dir, done), bytes.Repeat([]byte("x"), 1024)},
		"cut archive":           {pack, frames(dir, done), guestArchive(tar.Header{Typeflag: tar.TypeReg, Name: "x", Size: 2000})[:1024]},
		"parent":                {pack, frames(dir, done), guestArchive(tar.Header{Typeflag: tar.TypeReg, Name: "../x"})},
		"absolute":              {pack, frames(dir, done), guestArchive(tar.Header{Typeflag: tar.TypeReg, Name: "/x"})},
		"unclean":               {pack, frames(dir, done), guestArchive(tar.Header{Typeflag: tar.TypeReg, Name: "./x"})},
		"hard link":             {pack, frames(dir, done), guestArchive(tar.Header{Typeflag: tar.TypeLink, Name: "x", Linkname: "/etc/passwd"})},
		"link to nothing":       {pack, frames(dir, done), guestArchive(tar.Header{Typeflag: tar.TypeSymlink, Name: "x"})},
		"global header":         {pack, frames(dir, done), guestArchive(tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}})},
		"goes on":               {pack, frames(dir, done), append(guestArchive(), make([]byte, maxAfterEnd+4096)...)},
		"archive without info":  {pack, frames(done), guestArchive()},
	} {
		t.Run(name, func(t *testing.T) {
			if err := answers(t, c.reports, c.data, c.request, io.Discard); !errors.Is(err, ErrHostile) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// TestPackedWithoutEnd: what the caller gets of an archive that ends early has no end.
func TestPackedWithoutEnd(t *testing.T) {
	var out bytes.Buffer
	denied := fileReport{Error: &FileError{Code: FileDenied, Path: "/d/x"}, Done: true}
	err := answers(t, frames(fileReport{Info: &FileInfo{Name: "d", Type: TypeDirectory}}, denied), guestArchive(tar.Header{Typeflag: tar.TypeReg, Name: "f"})[:512], FileRequest{Op: FilePack, Path: "/d"}, &out)
	if failed := (*FileError)(nil); !errors.As(err, &failed) || failed.Path != "/d/x" {
		t.Errorf("the error is %v", err)
	}
	if b := out.Bytes(); len(b) < 512 || bytes.HasSuffix(b, make([]byte, 1024)) {
		t.Errorf("the caller has %d bytes, with an end", len(b))
	}
	if err := answers(t, frames(fileReport{Error: &FileError{Code: FileDenied, Path: "/etc/x"}, Done: true}), nil, FileRequest{Op: FilePack, Path: "/d"}, &out); err == nil || strings.Contains(err.Error(), "etc") {
		t.Errorf("an error about a path that was not asked for: %v", err)
	}
}

// TestManyEntries: archives are bounded in both directions.
func TestManyEntries(t *testing.T) {
	for name, p := range map[string]*repacker{"entries": {entries: maxEntries}, "names": {names: maxNames}} {
		p.to, p.check = tar.NewWriter(io.Discard), sentName
		if err := p.entry(&tar.Header{Typeflag: tar.TypeReg, Name: "x"}, nil); err == nil || !strings.Contains(err.Error(), "send several") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// discarding is a stream of which only reads matter.
type discarding struct {
	net.Conn
	io.Reader
}

func (d discarding) Read(b []byte) (int, error)  { return d.Reader.Read(b) }
func (d discarding) Write(b []byte) (int, error) { return len(b), nil }
func (d discarding) Close() error                { return nil }

// FuzzFileReports: whatever a guest answers, the caller gets what a file can have, or an error.
func FuzzFileReports(f *testing.F) {
	dir := fileReport{Info: &FileInfo{Name: "d", Type: TypeDirectory}}
	ops := []FileOp{FileStat, FileList, FileRead, FilePack}
	f.Add(1, frames(dir, fileReport{Entries: []FileInfo{{Name: "a", Type: TypeFile}, {Name: "b", Type: TypeSymlink, Target: "a"}}, More: true}, fileReport{Done: true}), []byte{})
	f.Add(2, frames(fileReport{Info: &FileInfo{Name: "f", Type: TypeFile, Size: 3}}, fileReport{Done: true}), []byte("abc"))
	f.Add(0, frames(fileReport{Error: &FileError{Code: FileOther, Path: "/d", Text: "text"}, Done: true}), []byte{})
	f.Add(3, frames(dir, fileReport{Done: true}), guestArchive(tar.Header{Typeflag: tar.TypeDir, Name: "a/"}, tar.Header{Typeflag: tar.TypeReg, Name: "a/b", Size: 3}, tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "/x"}))
	f.Add(3, frames(dir, fileReport{Done: true}), guestArchive(tar.Header{Typeflag: tar.TypeReg, Name: "../x"}))
	f.Fuzz(func(t *testing.T, op int, reports, data []byte) {
		if op < 0 || op >= len(ops) {
			return
		}
		r := FileRequest{Op: ops[op], Path: "/d", After: "0", Max: 10}
		var out bytes.Buffer
		last, listed := r.After, 0
		call := &fileCall{request: &r, ctl: discarding{Reader: bytes.NewReader(reports)}, data: discarding{Reader: bytes.NewReader(data)}}
		call.transfer = FileTransfer{Out: &out, Entry: func(i FileInfo) error {
			if listed++; i.check() != nil || i.Name <= last || listed > r.Max {
				t.Fatalf("listed %+v", i)
			}
			last = i.Name
			return nil
		}}
		res, err := call.carryOut()
		if err != nil {
			return
		}
		if _, err := json.Marshal(res); err != nil || res.Info != (FileInfo{}) && res.Info.check() != nil {
			t.Fatalf("%+v: %v", res, err)
		}
		if r.Op != FilePack {
			return
		}
		for in := tar.NewReader(&out); ; {
			h, err := in.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := packedName(h); err != nil || h.Uid != 0 || h.Mode > 0o777 {
				t.Fatalf("passed on %+v: %v", h, err)
			}
			if _, err := io.Copy(io.Discard, in); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// FuzzSentArchive: whatever a caller sends, the guest gets an archive that it can unpack, or none with an end.
func FuzzSentArchive(f *testing.F) {
	f.Add(guestArchive(tar.Header{Typeflag: tar.TypeDir, Name: "./"}, tar.Header{Typeflag: tar.TypeReg, Name: "./a/b", Size: 3}, tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "/x"}))
	f.Add(guestArchive(tar.Header{Typeflag: tar.TypeReg, Name: ".//../x"}))
	f.Add(guestArchive(tar.Header{Typeflag: tar.TypeLink, Name: "l", Linkname: "x"}))
	f.Fuzz(func(t *testing.T, archive []byte) {
		var to bytes.Buffer
		call := &fileCall{request: &FileRequest{Op: FileUnpack, Path: "/d"}, transfer: FileTransfer{In: bytes.NewReader(archive)}}
		if err := call.unpack(&to); err != nil {
			if mine := (*localError)(nil); !errors.As(err, &mine) {
				t.Fatalf("not the caller's error: %v", err)
			}
			return
		}
		for in := tar.NewReader(&to); ; {
			h, err := in.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil {
				_, err = EntryName(h)
			}
			if err == nil {
				_, err = io.Copy(io.Discard, in)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}
