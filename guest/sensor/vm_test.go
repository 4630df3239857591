package sensor

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
)

func loopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, req)
}

var _ = unsafe.Pointer(nil)

// bench is a cell-like place to run workloads in: a cgroup, and an overlay
// that is the root of a mount namespace.
type bench struct {
	t      testing.TB
	sensor *Sensor
	root   string
	cgroup *os.File
	id     uint64
	events []audit.Event
}

func newBench(t testing.TB, set Settings) *bench {
	inVM(t)
	s, err := Load()
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { s.Close() })
	b := &bench{t: t, sensor: s}
	b.place()
	err = s.Start(context.Background(), set, func(_ context.Context, e *audit.Event) error {
		b.events = append(b.events, *e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Track(b.id, "step", b.root); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) place() {
	dir := b.t.TempDir()
	cg := filepath.Join("/sys/fs/cgroup", filepath.Base(dir)+b.t.Name())
	must(b.t, os.Mkdir(cg, 0o755))
	f, err := os.Open(cg)
	must(b.t, err)
	st, _ := f.Stat()
	b.cgroup, b.id = f, st.Sys().(*syscall.Stat_t).Ino
	lower := dir + "/lower"
	for _, d := range []string{"lower/proc", "lower/dev", "lower/tmp", "lower/old", "lower/workspace", "upper", "work", "root"} {
		must(b.t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	must(b.t, os.Link("/init", lower+"/workload"))
	_ = lower
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLoads(t *testing.T) {
	inVM(t)
	begin := time.Now()
	s, err := Load()
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Log(time.Since(begin))
	defer s.Close()
	dir := "/sys/fs/cgroup/smoke"
	os.Mkdir(dir, 0o755)
	st, _ := os.Stat(dir)
	id := st.Sys().(*syscall.Stat_t).Ino
	ctx := context.Background()
	err = s.Start(ctx, Settings{Boot: "b", Run: "r", ReadOver: -1}, func(_ context.Context, e *audit.Event) error {
		b, _ := json.Marshal(e)
		fmt.Println(string(b))
		return nil
	})
	must(t, err)
	os.MkdirAll("/m/lower", 0o755)
	must(t, unix.Mount("/dev/vda", "/m/lower", "erofs", unix.MS_RDONLY, ""))
	os.MkdirAll("/m/rw", 0o755)
	must(t, unix.Mount("x", "/m/rw", "tmpfs", 0, ""))
	for _, d := range []string{"upper", "work", "root"} {
		os.MkdirAll("/m/rw/"+d, 0o755)
	}
	must(t, unix.Mount("overlay", "/m/rw/root", "overlay", 0, "lowerdir=/m/lower,upperdir=/m/rw/upper,workdir=/m/rw/work"))
	must(t, unix.Mount("x", "/m/rw/root/proc", "proc", 0, ""))
	must(t, s.Track(id, "one", "/m/rw/root"))
	f, _ := os.Open(dir)
	cmd := exec.Command("/bin/sh", "-c", `mkdir /w; cd /w; echo hi > a; mkdir d; mv a d/b; ln d/b c; rm c; cp /bin/true x; ./x; (echo sub >y); python3 -c '
import socket
s=socket.socket(); 
try: s.connect(("127.0.0.1",9))
except OSError as e: print(e)
socket.socket(socket.AF_INET6,socket.SOCK_DGRAM).sendto(b"x",("::1",53))
'; kill -9 $$`)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd()), Chroot: "/m/rw/root"}
	cmd.Stderr = os.Stderr
	cmd.Stdout = os.Stdout
	fmt.Println(cmd.Run())
	begin = time.Now()
	must(t, s.Flush(ctx))
	fmt.Println("flush", time.Since(begin))
}

func workload(args []string) int { return 0 }
