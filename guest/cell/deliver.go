package cell

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
)

// Deliver implements channel.Holder. The files are complete before the tmpfs with them is mounted. What the command has done to its root
// does not matter: the path is looked up in its mount namespace, which it cannot change.
func (m *member) Deliver(all []channel.Secret) error {
	m.ending.Lock()
	defer m.ending.Unlock()
	if m.finished {
		return nil
	}
	if err := m.remove(); err != nil || len(all) == 0 {
		return err
	}
	if !m.secret {
		return errors.New("the command was started without secrets and cannot get any: start another one")
	}
	mount, err := newSecretsMount()
	if err != nil {
		return err
	}
	defer unix.Close(mount)
	if m.secrets, err = unix.Openat(mount, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		m.secrets = -1
		return fmt.Errorf("open the new secrets: %w", err)
	}
	err = write(m.secrets, all, m.who)
	if err == nil && m.watcher != nil {
		err = m.watch(m.secrets)
	}
	if err == nil {
		err = m.mountSecrets(mount)
	}
	if err == nil {
		return nil
	}
	forgotten := m.forget()
	if !m.Alive() { // its end will be reported
		return nil
	}
	return errors.Join(err, forgotten)
}

// newSecretsMount returns a tmpfs like that of mountSecrets, which is mounted nowhere.
func newSecretsMount() (mount int, err error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("make a file system for the step's secrets: %w", err)
	}
	defer unix.Close(fs)
	for _, option := range strings.Split(secretsOptions, ",") {
		name, value, _ := strings.Cut(option, "=")
		if err := unix.FsconfigSetString(fs, name, value); err != nil {
			return -1, fmt.Errorf("set %s of the file system for the step's secrets: %w", name, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("make a file system for the step's secrets: %w", err)
	}
	const flags = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	if mount, err = unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, flags); err != nil {
		return -1, fmt.Errorf("mount the step's secrets: %w", err)
	}
	return mount, nil
}

// mountSecrets mounts a tmpfs at the command's SecretsDir.
func (m *member) mountSecrets(mount int) error {
	return m.inMounts(func(p *program) {
		p.call("mount the secrets", unix.SYS_MOVE_MOUNT, mount, "", unix.AT_FDCWD, channel.SecretsDir, unix.MOVE_MOUNT_F_EMPTY_PATH)
	})
}

// remove removes the command's secrets, if it has any. The tmpfs is freed when no process has it open. The caller holds ending.
func (m *member) remove() error {
	if m.secrets < 0 {
		return nil
	}
	return errors.Join(m.forget(), m.inMounts(unmountSecrets))
}

// inMounts makes calls in the command's mount namespace, which is gone if its main process has been reaped: then it makes none.
func (m *member) inMounts(calls func(*program)) error {
	m.mu.Lock() // so that the process is not reaped meanwhile
	defer m.mu.Unlock()
	if m.main == nil {
		return nil
	}
	return m.main.inMounts(calls)
}
