package cell

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unsafe"

	"github.com/moby/sys/user"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
)

// maxUsers bounds the size of /etc/passwd and of /etc/group in bytes.
const maxUsers = 1 << 20

// userOf returns the user that executes a command, and adds to its environment who that is. It returns nil for root.
func (b *Block) userOf(cmd *channel.Command) (*user.ExecUser, error) {
	if cmd.User == "" {
		return nil, nil
	}
	passwd, err := b.open("etc/passwd")
	if err != nil {
		return nil, err
	}
	defer passwd.Close()
	group, err := b.open("etc/group")
	if err != nil {
		return nil, err
	}
	defer group.Close()
	u, err := user.GetExecUser(cmd.User, &user.ExecUser{Home: "/"}, io.LimitReader(passwd, maxUsers), io.LimitReader(group, maxUsers))
	if err != nil {
		return nil, &channel.ExecError{Code: 126, Err: fmt.Errorf("user %q: %w", cmd.User, err)}
	}
	name, _, _ := strings.Cut(cmd.User, ":")
	cmd.Env = slices.Clone(cmd.Env)
	for _, v := range [][2]string{{"HOME", u.Home}, {"USER", name}, {"LOGNAME", name}} {
		set := func(kv string) bool { return strings.HasPrefix(kv, v[0]+"=") }
		if !slices.ContainsFunc(cmd.Env, set) && !strings.Contains(v[1], "\x00") {
			cmd.Env = append(cmd.Env, v[0]+"="+v[1])
		}
	}
	return u, nil
}

// open opens a regular file of the cells' root, in which commands can have put links. A missing file is empty.
func (b *Block) open(name string) (*os.File, error) {
	root, err := unix.Open(b.config.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the cells' root: %w", err)
	}
	defer unix.Close(root)
	how := &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(root, name, how)
	if errors.Is(err, unix.ENOENT) {
		return os.Open(os.DevNull)
	}
	if err != nil {
		return nil, fmt.Errorf("open /%s: %w", name, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return nil, errors.Join(err, fmt.Errorf("/%s is not a regular file", name))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// become adds the calls that make the process that of a user, with the terminal if it has one.
func become(p *program, u *user.ExecUser, terminal bool) {
	const change = "become another user"
	if terminal {
		p.call(change, unix.SYS_FCHOWN, 0, u.Uid, -1)
	}
	groups := make([]uint32, 1, 1+len(u.Sgids))
	groups[0] = uint32(u.Gid)
	for _, g := range u.Sgids {
		groups = append(groups, uint32(g))
	}
	p.call(change, unix.SYS_SETGROUPS, len(groups), unsafe.Pointer(&groups[0]))
	p.call(change, unix.SYS_SETRESGID, u.Gid, u.Gid, u.Gid)
	p.call(change, unix.SYS_SETRESUID, u.Uid, u.Uid, u.Uid)
}
