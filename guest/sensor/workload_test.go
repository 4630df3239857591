package sensor

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// workloads are the programs that the tests observe. They run inside the cell,
// in /workspace.
var workloads = map[string]func(args []string) error{
	"enter":     func(a []string) error { return enter(a[0], a[1:]) },
	"true":      func([]string) error { return nil },
	"exit":      func(a []string) error { n, _ := strconv.Atoi(a[0]); os.Exit(n); return nil },
	"wait":      func([]string) error { _, err := os.Stdin.Read(make([]byte, 1)); return err },
	"spawn":     spawn,
	"die":       func([]string) error { return unix.Kill(unix.Getpid(), unix.SIGKILL) },
	"thread":    execInThread,
	"files":     changeFiles,
	"unlinked":  writeUnlinked,
	"rewrite":   rewrite,
	"mapped":    writeMapped,
	"otherways": writeOtherWays,
	"memfd":     runMemfd,
	"read":      func([]string) error { _, err := os.ReadFile("given"); return err },
	"connect":   connect,
	"reach":     reach,
	"flood":     flood,
	"fork":      forkOnly,
	"large":     writeLarge,
	"script":    runScript,
	"./run.sh":  func([]string) error { return nil },
	"nested":    func([]string) error { return nested() },
	"race":      race,
	"attest":    func([]string) error { return attest() },
	"chroot":    func([]string) error { return changeRoot() },
	"copyup":    func([]string) error { return appendTo("given", "more") },
	"emptied":   func([]string) error { return empty() },
	"aliases":   func([]string) error { return aliases() },
	"sparse":    func([]string) error { return sparse() },
}

func workload(args []string) int {
	if err := workloads[args[0]](args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "workload %q: %v\n", args, err)
		return 99
	}
	return 0
}

// all runs steps until one fails.
func all(steps ...func() error) error {
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

func write(name, content string) func() error {
	return func() error { return os.WriteFile(name, []byte(content), 0o644) }
}

// spawn runs another workload as a child and does not care how it ends.
func spawn(args []string) error {
	cmd := exec.Command("/workload", append([]string{"workload"}, args...)...)
	cmd.Stdin = os.Stdin
	if err := cmd.Run(); cmd.ProcessState == nil {
		return err
	}
	return nil
}

// execInThread calls execve in a thread that is not the leader.
func execInThread([]string) error {
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		failed <- syscall.Exec("/workload", []string{"threaded", "workload", "exit", "3"}, nil)
	}()
	return <-failed
}

func changeFiles([]string) error {
	return all(
		func() error { return os.Mkdir("d", 0o755) },
		write("d/a", "one"),
		func() error { return os.Rename("d/a", "d/b") },
		write("c", "two"),
		func() error { return os.Rename("c", "d/b") },
		func() error { return os.Link("d/b", "l") },
		func() error { return os.Symlink("l", "s") },
		write("x", "three"),
		func() error { return unix.Renameat2(unix.AT_FDCWD, "x", unix.AT_FDCWD, "l", unix.RENAME_EXCHANGE) },
		func() error { return os.Remove("s") },
		func() error { return unix.Mkfifo("p", 0o600) },
		func() error { return os.RemoveAll("d") },
		func() error { return os.Remove("given") }, // of the lower layer
		write("/tmp/t", "four"),                    // of another file system
		func() error { // failures are not events
			os.Remove("absent")
			os.Mkdir("/workspace", 0o755)
			os.Rename("absent", "x")
			return nil
		},
	)
}

// writeUnlinked leaves contents that no path leads to.
func writeUnlinked([]string) error {
	for i := range 20 {
		name := fmt.Sprint("u", i)
		if err := all(write(name, name+" content"), func() error { return os.Remove(name) }); err != nil {
			return err
		}
	}
	return nil
}

// rewrite writes contents of one size into one file as fast as it can.
func rewrite([]string) error {
	for i := range 200 {
		if err := write("r", fmt.Sprintf("%06d", i))(); err != nil {
			return err
		}
		past := time.Unix(1, 0)
		if err := os.Chtimes("r", past, past); err != nil {
			return err
		}
	}
	return nil
}

// writeMapped writes through mappings: before and after the descriptor is closed.
func writeMapped([]string) error {
	for _, late := range []bool{false, true} {
		name := fmt.Sprint("m", late)
		f, err := os.Create(name)
		if err != nil {
			return err
		}
		f.Truncate(4096)
		mem, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		if late {
			f.Close()
			time.Sleep(50 * time.Millisecond)
		}
		copy(mem, "mapped "+name)
		unix.Munmap(mem)
		f.Close()
	}
	return nil
}

// writeOtherWays writes without write(2).
func writeOtherWays([]string) error {
	return all(
		write("src", "0123456789"),
		write("cut", "0123456789"),
		func() error { return os.Truncate("cut", 4) },
		func() error { return transfer("copied", unixCopy) },
		func() error { return transfer("sent", unixSend) },
		func() error {
			f, err := os.Create("allocated")
			if err != nil {
				return err
			}
			defer f.Close()
			return unix.Fallocate(int(f.Fd()), 0, 0, 5)
		},
		func() error {
			fd, err := unix.Open("/tmp", unix.O_TMPFILE|unix.O_WRONLY, 0o600)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			_, err = unix.Write(fd, []byte("nameless"))
			return err
		},
	)
}

func unixCopy(to, from int) error {
	_, err := unix.CopyFileRange(from, nil, to, nil, 10, 0)
	return err
}

func unixSend(to, from int) error {
	_, err := unix.Sendfile(to, from, nil, 10)
	return err
}

func transfer(name string, how func(to, from int) error) error {
	from, err := os.Open("src")
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.Create(name)
	if err != nil {
		return err
	}
	defer to.Close()
	return how(int(to.Fd()), int(from.Fd()))
}

func runMemfd([]string) error {
	fd, err := unix.MemfdCreate("ghost", 0)
	if err != nil {
		return err
	}
	data, err := os.ReadFile("/workload")
	if err != nil {
		return err
	}
	if _, err := unix.Write(fd, data); err != nil {
		return err
	}
	ro, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	unix.Close(fd)
	return syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", ro), []string{"ghost", "workload", "true"}, nil)
}

func connect([]string) error {
	for _, to := range []string{"127.0.0.1:9", "[::1]:9"} {
		if c, err := net.Dial("tcp", to); err == nil {
			c.Close()
		}
	}
	return sendTo(1, &unix.SockaddrInet6{Port: 53, Addr: [16]byte{15: 1}})
}

// reach tries every way to a TCP and a UDP port of this machine that takes an
// ephemeral port, one line a try: socket's family, address, whether to block, what to do.
func reach(a []string) error {
	port, _ := strconv.Atoi(a[0])
	v4 := &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
	v6 := &unix.SockaddrInet6{Port: port, Addr: [16]byte{15: 1}}
	mapped := &unix.SockaddrInet6{Port: port, Addr: [16]byte{10: 0xff, 11: 0xff, 12: 127, 15: 1}}
	closed := &unix.SockaddrInet4{Port: 9, Addr: [4]byte{127, 0, 0, 1}}
	connect := func(s int, to unix.Sockaddr) error { return unix.Connect(s, to) }
	send := func(s int, to unix.Sockaddr) error { return unix.Sendto(s, []byte("x"), 0, to) }
	connectAndSend := func(s int, to unix.Sockaddr) error {
		if err := unix.Connect(s, to); err != nil {
			return err
		}
		_, err := unix.Write(s, []byte("x"))
		return err
	}
	fastOpen := func(s int, to unix.Sockaddr) error { return unix.Sendto(s, []byte("x"), unix.MSG_FASTOPEN, to) }
	for i, try := range []struct {
		family, kind int
		to           unix.Sockaddr
		do           func(int, unix.Sockaddr) error
		want         error
	}{
		{unix.AF_INET, unix.SOCK_STREAM, v4, connect, nil},
		{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_NONBLOCK, v4, connect, unix.EINPROGRESS},
		{unix.AF_INET6, unix.SOCK_STREAM, v6, connect, nil},
		{unix.AF_INET6, unix.SOCK_STREAM | unix.SOCK_NONBLOCK, v6, connect, unix.EINPROGRESS},
		{unix.AF_INET6, unix.SOCK_STREAM, mapped, connect, nil},
		{unix.AF_INET, unix.SOCK_STREAM, v4, fastOpen, nil},
		{unix.AF_INET, unix.SOCK_DGRAM, v4, send, nil},
		{unix.AF_INET, unix.SOCK_DGRAM, v4, connectAndSend, nil},
		{unix.AF_INET6, unix.SOCK_DGRAM, v6, send, nil},
		{unix.AF_INET6, unix.SOCK_DGRAM, mapped, send, nil},
		{unix.AF_INET6, unix.SOCK_DGRAM, mapped, connectAndSend, nil},
		{unix.AF_INET, unix.SOCK_STREAM, closed, connect, unix.ECONNREFUSED},
	} {
		s, err := unix.Socket(try.family, try.kind, 0)
		if err != nil {
			return err
		}
		if err := try.do(s, try.to); err != try.want {
			return fmt.Errorf("try %d: %v, expected %v", i, err, try.want)
		}
		if try.kind&unix.SOCK_NONBLOCK != 0 {
			unix.Poll([]unix.PollFd{{Fd: int32(s), Events: unix.POLLOUT}}, 1000)
		}
		unix.Close(s)
	}
	return nil
}

func sendTo(n int, to *unix.SockaddrInet6) error {
	s, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	for range n {
		unix.Sendto(s, []byte("x"), 0, to)
	}
	return nil
}

func flood(a []string) error {
	n, _ := strconv.Atoi(a[0])
	return all(
		func() error { return sendTo(n, &unix.SockaddrInet6{Port: 53, Addr: [16]byte{15: 1}}) },
		func() error { return spawn([]string{"true"}) },
	)
}

// forkOnly has a child that writes a file and never executes anything.
func forkOnly([]string) error {
	name, _ := unix.BytePtrFromString("forked")
	pid, err := rawFork(name)
	if err != nil {
		return err
	}
	var status unix.WaitStatus
	_, err = unix.Wait4(pid, &status, 0, nil)
	return err
}

func writeLarge(a []string) error {
	mb, _ := strconv.Atoi(a[0])
	return all(write("large", strings.Repeat("0123456789abcdef", mb<<16)), write("small", "after"))
}

func runScript([]string) error {
	return all(
		func() error { return os.WriteFile("run.sh", []byte("#!/workload workload\n"), 0o755) },
		func() error { return exec.Command("./run.sh", "given").Run() },
	)
}

// nested runs a child in another pid namespace.
func nested() error {
	cmd := exec.Command("/workload", "workload", "true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	return cmd.Run()
}

// attest checks with the kernel and by itself that a file did not change, and changes it.
func attest() error {
	for i, trick := range []func(name string, mem []byte) error{
		func(name string, _ []byte) error { return touch(name) },
		func(string, []byte) error { time.Sleep(200 * time.Millisecond); return nil },
		func(name string, mem []byte) error { return unix.Msync(mem, unix.MS_SYNC) },
	} {
		name := fmt.Sprint("v", i)
		if err := write(name, strings.Repeat("good ", 1000))(); err != nil {
			return err
		}
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		mem, err := unix.Mmap(int(f.Fd()), 0, 5000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		f.Close()
		mem[0] = 'g' // as it was; the page is dirty from now on: later stores leave no trace in the file's times
		if err := trick(name, mem); err != nil {
			return err
		}
		if err := appendTo(name, ""); err != nil {
			return err
		}
		time.Sleep(300 * time.Millisecond) // it can be hashed now
		copy(mem, "evil ")
		if err := all(func() error { return trick(name, mem) }, func() error { return unix.Munmap(mem) }); err != nil {
			return err
		}
		// A second writer that writes after the first has closed, and sets the times back.
		second := fmt.Sprint("w", i)
		if err := write(second, "good")(); err != nil {
			return err
		}
		if f, err = os.OpenFile(second, os.O_RDWR, 0); err != nil {
			return err
		}
		if err := appendTo(second, ""); err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
		if _, err := f.WriteAt([]byte("evil"), 0); err != nil {
			return err
		}
		if err := all(func() error { return touch(second) }, f.Close); err != nil {
			return err
		}
	}
	return nil
}

func touch(name string) error { return os.Chtimes(name, time.Unix(1, 0), time.Unix(1, 0)) }

func appendTo(name, content string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(content)
	return err
}

// changeRoot works below another root directory.
func changeRoot() error {
	return all(
		func() error { return os.MkdirAll("jail/etc", 0o755) },
		func() error { return unix.Chroot("jail") },
		func() error { return os.Chdir("/etc") },
		write("/etc/passwd", "inside"),
		func() error { return unix.Chroot(".") },
		write("/shadow", "deeper"),
	)
}

// empty takes a file's content away by opening it for reading.
func empty() error {
	return all(write("e", "content"), func() error {
		fd, err := unix.Open("e", unix.O_RDONLY|unix.O_TRUNC, 0)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	})
}

// aliases writes to a file of the lower layer under another name.
func aliases() error {
	return all(
		func() error { return os.Link("given", "alias") },
		func() error { return appendTo("alias", "evil") },
		func() error { return os.Remove("alias") },
	)
}

// sparse leaves files that take for ever to hash, and a few that do not.
func sparse() error {
	steps := []func() error{}
	for i, size := range []int64{1 << 40, 12 << 30, 12 << 30, 3 << 20} {
		name := fmt.Sprint("sparse", i)
		steps = append(steps, write(name, ""), func() error {
			f, err := os.OpenFile(name, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			return f.Truncate(size)
		})
	}
	return all(append(steps, write("small", "small"))...)
}
