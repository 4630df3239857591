package local

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Caller is the user who runs the commands that Custody starts on the host, such as those of cmd: sources.
type Caller struct {
	uid, gid uint32
	groups   []uint32
	name     string
	home     string
}

// ErrRoot means that a command would have to run as root.
var ErrRoot = errors.New("a cmd: source does not run as root")

// FindCaller returns the user who called the program: for root, the user who called sudo (SUDO_UID), or otherwise the
// owner of the project file; nil for other users, who need no change. configured is the name of a user that takes
// precedence; it may be empty. It returns ErrRoot if only root remains.
func FindCaller(getenv func(string) string, file, configured string) (*Caller, error) {
	if configured != "" {
		return lookup(user.Lookup(configured))
	}
	if os.Getuid() != 0 {
		return nil, nil
	}
	uid := getenv("SUDO_UID")
	if uid == "" || uid == "0" {
		uid = owner(file)
	}
	if uid == "" || uid == "0" {
		return nil, ErrRoot
	}
	return lookup(user.LookupId(uid))
}

func owner(file string) (uid string) {
	info, err := os.Stat(file)
	if err != nil {
		return ""
	}
	return strconv.FormatUint(uint64(info.Sys().(*syscall.Stat_t).Uid), 10)
}

func lookup(u *user.User, err error) (*Caller, error) {
	if err != nil {
		return nil, fmt.Errorf("find the user of a cmd: source: %w", err)
	}
	c := &Caller{name: u.Username, home: u.HomeDir}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("find the groups of %s: %w", u.Username, err)
	}
	for i, text := range append([]string{u.Uid, u.Gid}, groups...) {
		id, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s has the id %q", u.Username, text)
		}
		switch i {
		case 0:
			c.uid = uint32(id)
		case 1:
			c.gid = uint32(id)
		default:
			c.groups = append(c.groups, uint32(id))
		}
	}
	if c.uid == 0 {
		return nil, ErrRoot
	}
	return c, nil
}

// Become makes a command run as the caller, with the environment variables of that user. A nil Caller changes nothing.
func (c *Caller) Become(cmd *exec.Cmd) {
	if c == nil || os.Getuid() != 0 {
		return
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: c.uid, Gid: c.gid, Groups: c.groups}
	own := []string{"HOME=" + c.home, "USER=" + c.name, "LOGNAME=" + c.name}
	cmd.Env = append(slices.DeleteFunc(cmd.Environ(), func(kv string) bool {
		return slices.ContainsFunc(own, func(o string) bool { return strings.HasPrefix(kv, o[:strings.IndexByte(o, '=')+1]) })
	}), own...)
}
