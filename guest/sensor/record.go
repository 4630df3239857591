package sensor

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The kinds of records, operations and flags: record.h gives their meaning.
const (
	kindExec = 1
	kindArgv = 2
	kindExit = 3
	kindFile = 4
	kindFlow = 5

	opCreate = 1
	opWrite  = 2
	opRead   = 3
	opRename = 4
	opDelete = 5
	opLink   = 6
	opChroot = 7

	pathDeleted = 1
	pathCut     = 2
	pathPseudo  = 4
	pathRooted  = 8

	procExeced = 1

	fileHandle    = 1
	fileMapped    = 2
	fileReplaced  = 4
	fileExchanged = 8
	fileShared    = 16
	fileSecret    = 32
)

const (
	headSize = 40
	execSize = headSize + 24
	argvSize = headSize + 8
	exitSize = headSize + 16
	fileSize = headSize + 56
	flowSize = headSize + 48
)

// head is what every record begins with. Times are nanoseconds of the boot clock.
type head struct {
	kind        uint8
	flags       uint8
	step        uint32
	time        uint64
	start       uint64
	originStart uint64
	pid         uint32
	originPID   uint32
}

// path is names from the leaf upward, each ended by NUL.
type path struct {
	names []byte
	flags uint8
}

type execRecord struct {
	ppid     uint32
	uid      uint32
	argvSize int
	argv     []byte
	exe, cwd path
}

type argvRecord struct {
	offset int
	data   []byte
}

type exitRecord struct {
	execed uint64
	status uint32
}

type fileRecord struct {
	inode      uint64
	generation uint64
	ino, toIno uint64
	size       int64
	dev        uint32
	op         uint8
	flags      uint8
	path, to   path
}

type flowRecord struct {
	addr   [16]byte
	family uint16
	port   uint16
	proto  uint16
	errno  int32

	localPort uint16
	local4    [4]byte
	local6    [16]byte
}

// record is one record out of a ring; body is one of the types above.
type record struct {
	head
	body any
}

var errShort = errors.New("record is shorter than it says")

// decode reads one record. It copies what it keeps.
func decode(b []byte) (record, error) {
	if len(b) < headSize {
		return record{}, errShort
	}
	r := record{head: decodeHead(b)}
	var err error
	switch r.kind {
	case kindExec:
		r.body, err = decodeExec(b)
	case kindArgv:
		r.body, err = decodeArgv(b)
	case kindExit:
		r.body, err = decodeExit(b)
	case kindFile:
		r.body, err = decodeFile(b)
	case kindFlow:
		r.body, err = decodeFlow(b)
	default:
		err = fmt.Errorf("record of unknown kind %d", r.kind)
	}
	return r, err
}

func decodeHead(b []byte) head {
	le := binary.LittleEndian
	return head{
		kind:        b[0],
		flags:       b[1],
		step:        le.Uint32(b[4:]),
		time:        le.Uint64(b[8:]),
		start:       le.Uint64(b[16:]),
		originStart: le.Uint64(b[24:]),
		pid:         le.Uint32(b[32:]),
		originPID:   le.Uint32(b[36:]),
	}
}

func decodeExec(b []byte) (*execRecord, error) {
	if len(b) < execSize {
		return nil, errShort
	}
	le, f := binary.LittleEndian, b[headSize:]
	kept, exe, cwd := le.Uint32(f[12:]), int(le.Uint16(f[16:])), int(le.Uint16(f[18:]))
	data := b[execSize:]
	if uint64(len(data)) < uint64(kept)+uint64(exe)+uint64(cwd) {
		return nil, errShort
	}
	data = append([]byte(nil), data[:exe+cwd+int(kept)]...)
	return &execRecord{
		ppid:     le.Uint32(f),
		uid:      le.Uint32(f[4:]),
		argvSize: int(le.Uint32(f[8:])),
		exe:      path{data[:exe], f[20]},
		cwd:      path{data[exe : exe+cwd], f[21]},
		argv:     data[exe+cwd:],
	}, nil
}

func decodeArgv(b []byte) (*argvRecord, error) {
	if len(b) < argvSize {
		return nil, errShort
	}
	le, f := binary.LittleEndian, b[headSize:]
	size := le.Uint32(f[4:])
	if uint64(len(b)-argvSize) < uint64(size) {
		return nil, errShort
	}
	data := append([]byte(nil), b[argvSize:argvSize+int(size)]...)
	return &argvRecord{offset: int(le.Uint32(f)), data: data}, nil
}

func decodeExit(b []byte) (*exitRecord, error) {
	if len(b) < exitSize {
		return nil, errShort
	}
	le, f := binary.LittleEndian, b[headSize:]
	return &exitRecord{execed: le.Uint64(f), status: le.Uint32(f[8:])}, nil
}

func decodeFile(b []byte) (*fileRecord, error) {
	if len(b) < fileSize {
		return nil, errShort
	}
	le, f := binary.LittleEndian, b[headSize:]
	from, to := int(le.Uint16(f[48:])), int(le.Uint16(f[50:]))
	data := b[fileSize:]
	if len(data) < from+to {
		return nil, errShort
	}
	data = append([]byte(nil), data[:from+to]...)
	return &fileRecord{
		inode:      le.Uint64(f),
		generation: le.Uint64(f[8:]),
		ino:        le.Uint64(f[16:]),
		toIno:      le.Uint64(f[24:]),
		size:       int64(le.Uint64(f[32:])),
		dev:        le.Uint32(f[40:]),
		op:         f[52],
		flags:      f[53],
		path:       path{data[:from], f[54]},
		to:         path{data[from:], f[55]},
	}, nil
}

func decodeFlow(b []byte) (*flowRecord, error) {
	if len(b) < flowSize {
		return nil, errShort
	}
	le, f := binary.LittleEndian, b[headSize:]
	return &flowRecord{
		addr:   [16]byte(f[:16]),
		family: le.Uint16(f[16:]),
		port:   le.Uint16(f[18:]),
		proto:  le.Uint16(f[20:]),
		errno:  int32(le.Uint32(f[24:])),

		localPort: le.Uint16(f[22:]),
		local4:    [4]byte(f[28:]),
		local6:    [16]byte(f[32:]),
	}, nil
}

// String puts the names in their order: an absolute path, from the root of the cell's
// mounts. What the kernel calls deleted is marked as it is in /proc.
func (p path) String() string {
	out := make([]byte, 0, len(p.names)+16)
	if p.flags&pathCut != 0 {
		out = append(out, "(...)"...)
	}
	end := len(p.names)
	for end > 0 {
		begin := end - 1
		for begin > 0 && p.names[begin-1] != 0 {
			begin--
		}
		out = append(out, '/')
		out = append(out, p.names[begin:end-1]...)
		end = begin
	}
	if len(out) == 0 {
		out = append(out, '/')
	}
	if p.flags&(pathDeleted|pathPseudo) != 0 {
		out = append(out, " (deleted)"...)
	}
	return string(out)
}
