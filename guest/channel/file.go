package channel

import (
	"fmt"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

// FileOp is an operation on a file of the session.
type FileOp string

// The operations on files. A file is named by an absolute path, as the processes of the session name it.
const (
	FileStat   FileOp = "stat"   // describes a file
	FileList   FileOp = "list"   // describes the entries of a directory, in the order of their names
	FileRead   FileOp = "read"   // the content of a regular file
	FileWrite  FileOp = "write"  // makes a regular file, or replaces a file, when the content is complete
	FileMkdir  FileOp = "mkdir"  // makes a directory
	FileRemove FileOp = "remove" // removes a file or a directory
	FileMove   FileOp = "move"   // gives a file another name
	FilePack   FileOp = "pack"   // a tar archive of what is in a directory
	FileUnpack FileOp = "unpack" // unpacks a tar archive into a directory
	FileWatch  FileOp = "watch"  // reports the changes in a directory until the caller leaves, or the directory is gone
)

// FileRequest asks for an operation on a file.
type FileRequest struct {
	Op   FileOp
	Path audit.Text
	To   audit.Text `json:",omitempty"` // move: the new path
	User audit.Text `json:",omitempty"` // who does it, see Command; empty: root

	Offset int64 `json:",omitempty"` // read: the first byte
	Limit  int64 `json:",omitempty"` // read: maximum number of bytes; 0: up to the end
	// Mode is the permissions of what write and mkdir make; 0: those of the file that is replaced, or 0644 and 0755.
	Mode uint32 `json:",omitempty"`
	// Exclusive makes write and move fail if the new path exists.
	Exclusive bool `json:",omitempty"`
	// Recursive makes mkdir also make the parents, without an error for what exists, remove also remove what is in a directory, and watch
	// also report changes in the directories below.
	Recursive bool `json:",omitempty"`
	// Link makes stat describe a symbolic link in place of what it leads to.
	Link bool `json:",omitempty"`
	// After and Max are of list: only names after this one, and at most so many.
	After audit.Text `json:",omitempty"`
	Max   int        `json:",omitempty"`
}

// MaxDepth bounds how deep directories of an archive or a workspace are within each other.
const MaxDepth = 200

// MaxListed bounds FileRequest.Max.
const MaxListed = 1000

// FileType is the type of a file.
type FileType string

// The types of files.
const (
	TypeFile      FileType = "file"
	TypeDirectory FileType = "directory"
	TypeSymlink   FileType = "symlink"
	TypeFIFO      FileType = "fifo"
	TypeSocket    FileType = "socket"
	TypeDevice    FileType = "device"
)

// FileInfo describes a file.
type FileInfo struct {
	Name     audit.Text // without directories
	Type     FileType
	Size     int64
	Mode     uint32 // permissions, with setuid, setgid and sticky bits as in st_mode
	Modified time.Time
	UID, GID uint32
	Target   audit.Text `json:",omitempty"` // of a symbolic link
}

// FileCode is the kind of a FileError.
type FileCode string

// The kinds of a FileError.
const (
	FileMissing      FileCode = "missing"
	FileExists       FileCode = "exists"
	FileDenied       FileCode = "denied"
	FileReadOnly     FileCode = "read-only"
	FileNoSpace      FileCode = "no-space"
	FileNotDirectory FileCode = "not-directory"
	FileIsDirectory  FileCode = "is-directory"
	FileNotEmpty     FileCode = "not-empty"
	FileSpecial      FileCode = "special"
	FileSecret       FileCode = "secret"
	FileKernel       FileCode = "kernel"
	FileBusy         FileCode = "busy"
	FileAcross       FileCode = "across"
	FileChanged      FileCode = "changed"
	FileTooDeep      FileCode = "too-deep"
	FileInvalid      FileCode = "invalid"
	FileUser         FileCode = "user"
	FileArchived     FileCode = "archive"
	FileWatches      FileCode = "watches"
	FileOther        FileCode = "other"
)

// fileTexts are the messages, about a path.
var fileTexts = map[FileCode]string{
	FileMissing:      "%q: there is no such file",
	FileExists:       "%q exists",
	FileDenied:       "%q: the user may not do this",
	FileReadOnly:     "%q: the file system is read-only",
	FileNoSpace:      "%q: the disk of the sandbox is full",
	FileNotDirectory: "%q is not a directory, or a part of the path is not",
	FileIsDirectory:  "%q is a directory",
	FileNotEmpty:     "%q: the directory is not empty",
	FileSpecial:      "%q is not a regular file",
	FileSecret:       "%q: files with secrets are only for the processes that get them",
	FileKernel:       "%q is an interface of the kernel: start a process that uses it",
	FileBusy:         "%q is in use, for example as a mount point",
	FileAcross:       "%q: a move to another file system is a copy: start a process that does it",
	FileChanged:      "%q was changed by a process meanwhile",
	FileTooDeep:      "%q has too many symbolic links or is nested too deep",
	FileInvalid:      "%q is no valid path for this operation",
	FileUser:         "%q: the sandbox has no such user",
	FileWatches:      "%q: there are more directories to watch than the sandbox can: watch one below",
	FileArchived:     "the archive cannot be unpacked into %q",
	FileOther:        "%q: the operation failed",
}

// FileError is why an operation on a file failed.
type FileError struct {
	Code FileCode
	Path audit.Text
	Text string `json:",omitempty"` // the error of the kernel, with FileOther; what is wrong, with FileArchived
}

// Error implements error.
func (e *FileError) Error() string {
	text := fmt.Sprintf(fileTexts[e.Code], clip(string(e.Path)))
	if e.Text != "" {
		text += ": " + e.Text
	}
	return text
}

func clip(path string) string {
	if len(path) > 300 {
		return path[:300] + "..."
	}
	return path
}

// Check returns an error if the request is wrong.
func (r *FileRequest) Check() error {
	paths := []audit.Text{r.Path}
	if _, known := opsWithContent[r.Op]; !known {
		return fmt.Errorf("%.40q is no operation on files", r.Op)
	}
	if r.Op == FileMove {
		paths = append(paths, r.To)
	}
	for _, p := range paths {
		switch {
		case !strings.HasPrefix(string(p), "/"):
			return fmt.Errorf("the path %.200q is not absolute: begin it with /", p)
		case strings.IndexByte(string(p), 0) >= 0:
			return fmt.Errorf("the path %.200q has a NUL: leave it out", p)
		case len(p) >= maxPath:
			return fmt.Errorf("the path has %d bytes: use less than %d", len(p), maxPath)
		}
	}
	switch {
	case len(r.User) > maxStep || strings.IndexByte(string(r.User), 0) >= 0:
		return fmt.Errorf("the user %.40q is no name of a user", r.User)
	case r.Offset < 0 || r.Limit < 0:
		return fmt.Errorf("the offset %d or the limit %d is negative", r.Offset, r.Limit)
	case r.Mode > 0o7777:
		return fmt.Errorf("the mode %o is over 7777", r.Mode)
	case len(r.After) > maxComponent:
		return fmt.Errorf("the name to list after has %d bytes, a name has at most %d", len(r.After), maxComponent)
	case r.Op == FileList && (r.Max < 1 || r.Max > MaxListed):
		return fmt.Errorf("%d entries were asked for: ask for 1 to %d", r.Max, MaxListed)
	}
	return nil
}

// opsWithContent are all operations, and those with content set.
var opsWithContent = map[FileOp]bool{
	FileStat: false, FileList: false, FileRead: true, FileWrite: true, FileMkdir: false, FileRemove: false, FileMove: false,
	FilePack: true, FileUnpack: true, FileWatch: false,
}

// fileReport is a message of the guest about an operation.
type fileReport struct {
	Info    *FileInfo  `json:"info,omitempty"`    // of the file; before the content, if that is read
	Entries []FileInfo `json:"entries,omitempty"` // of list
	More    bool       `json:"more,omitempty"`    // list: there are others

	Changes []FileChange `json:"changes,omitempty"` // of watch
	Error   *FileError   `json:"error,omitempty"`
	Done    bool         `json:"done,omitempty"` // the last message
}

// fileControl is the host's message after all content that is to be written. Without it, nothing is written.
type fileControl struct {
	Complete bool `json:"complete,omitempty"`
}

// check refuses descriptions that a file cannot have.
func (i *FileInfo) check() error {
	switch i.Type {
	case TypeFile, TypeDirectory, TypeSymlink, TypeFIFO, TypeSocket, TypeDevice:
	default:
		return hostile("type of a file: %.40q", i.Type)
	}
	name := string(i.Name)
	if name == "" || len(name) > maxComponent || name != "/" && strings.Contains(name, "/") || strings.IndexByte(name, 0) >= 0 {
		return hostile("name of a file: %.300q", i.Name)
	}
	if i.Size < 0 || i.Mode > 0o7777 || len(i.Target) > maxPath || strings.IndexByte(string(i.Target), 0) >= 0 {
		return hostile("description of %.300q", i.Name)
	}
	if y := i.Modified.Year(); y < 0 || y > 9999 { // JSON has no others
		return hostile("time of %.300q", i.Name)
	}
	return nil
}

// check refuses errors that are not among the known ones. The guest's words are quoted.
func (e *FileError) check(r *FileRequest) error {
	if _, known := fileTexts[e.Code]; !known {
		return hostile("error of a file: %.40q", e.Code)
	}
	switch {
	case r.Op == FileMove && e.Path == r.To:
	case (r.Op == FilePack || r.Op == FileUnpack) && within(e.Path, r.Path):
	default:
		e.Path = r.Path
	}
	if e.Text != "" {
		e.Text = fmt.Sprintf("%.200q", e.Text)
	}
	return nil
}
