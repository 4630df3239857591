package tier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/custody-project/custody/vmm"
)

// driver is a driver for tests, whose guests become ready or not.
type driver struct {
	tier        string
	fingerprint string
	starts      atomic.Int32
	fails       error
	silent      bool // its guests never become ready
	alive       atomic.Int32
}

func (d *driver) Name() string        { return "test" }
func (d *driver) Snapshots() bool     { return true }
func (d *driver) Tier() string        { return d.tier }
func (d *driver) Fingerprint() string { return d.fingerprint }

func (d *driver) Start(context.Context, vmm.Machine) (vmm.VM, error) {
	d.starts.Add(1)
	if d.fails != nil {
		return nil, d.fails
	}
	ours, theirs := net.Pipe()
	if !d.silent {
		go fmt.Fprintln(theirs, "READY")
	}
	d.alive.Add(1)
	return &machine{driver: d, channel: ours}, nil
}

type machine struct {
	vmm.VM
	driver  *driver
	channel io.ReadWriteCloser
}

func (m *machine) Channel() io.ReadWriteCloser { return m.channel }

func (m *machine) Destroy(context.Context) error {
	m.driver.alive.Add(-1)
	return m.channel.Close()
}

func newPicker(t *testing.T, drivers ...*driver) Picker {
	p := Picker{
		Cache: filepath.Join(t.TempDir(), "run", "tiers.json"), Limit: 200 * time.Millisecond, Image: "one", Notice: func(string) {},
		Boot: func(ctx context.Context, d Driver) (vmm.VM, error) { return d.Start(ctx, vmm.Machine{}) },
	}
	for _, d := range drivers {
		p.Candidates = append(p.Candidates, Candidate{Tier: d.tier, Note: "note of " + d.tier, Probe: true, New: func() (Driver, error) { return d, nil }})
	}
	return p
}

func pick(t *testing.T, p Picker, required string) string {
	t.Helper()
	c, err := p.Pick(t.Context(), required)
	if err != nil {
		return err.Error()
	}
	if c.Note != "note of "+c.Driver.Tier() {
		t.Errorf("the note of %s is %q", c.Driver.Tier(), c.Note)
	}
	return c.Driver.Tier()
}

func TestPickIsTheBestThatWorks(t *testing.T) {
	for name, c := range map[string]struct {
		best, worst *driver
		required    string
		want        string
	}{
		"both work":                   {&driver{}, &driver{}, "", "best"},
		"the best does not start":     {&driver{fails: errors.New("no device")}, &driver{}, "", "worst"},
		"the best's guest hangs":      {&driver{silent: true}, &driver{}, "", "worst"},
		"the worst is required":       {&driver{}, &driver{}, "worst", "worst"},
		"the best is required, fails": {&driver{fails: errors.New("no device")}, &driver{}, "best", "best is required and not available: no machine started: no device"},
		"the best is required, hangs": {&driver{silent: true}, &driver{}, "best", "best is required and not available: it took longer than 0s: no guest booted"},
		"none works":                  {&driver{fails: errors.New("no device")}, &driver{silent: true}, "", "no isolation tier works: best: no machine started: no device; worst: it took longer than 0s: no guest booted"},
		"unknown":                     {&driver{}, &driver{}, "other", `unknown isolation "other": the tiers are best, worst`},
	} {
		t.Run(name, func(t *testing.T) {
			c.best.tier, c.worst.tier = "best", "worst"
			p := newPicker(t, c.best, c.worst)
			if got := pick(t, p, c.required); got != c.want {
				t.Errorf("picked %q, want %q", got, c.want)
			}
			if c.required == "worst" && c.best.starts.Load() > 0 {
				t.Error("a tier that was not required was tried")
			}
			if c.best.alive.Load()+c.worst.alive.Load() != 0 {
				t.Error("a probe's machine was not destroyed")
			}
		})
	}
}

// TestVerdictIsKept: a probe is not repeated while nothing that its verdict depends on changes.
func TestVerdictIsKept(t *testing.T) {
	d := &driver{tier: "best", fingerprint: "a"}
	p := newPicker(t, d)
	probes := func(want int32, what string) {
		t.Helper()
		pick(t, p, "")
		if got := d.starts.Swap(0); got != want {
			t.Errorf("%s: %d probes, want %d", what, got, want)
		}
	}
	probes(1, "at first")
	probes(0, "the same")
	d.fingerprint = "b"
	probes(1, "another driver")
	p.Image = "two"
	probes(1, "another image")
	d.fails = errors.New("broken")
	probes(0, "it worked once")
	p.Limit++
	probes(2, "another limit, and a failure that is confirmed")
	probes(0, "it fails as before")
	aged := func(age time.Duration) {
		t.Helper()
		b, err := os.ReadFile(p.Cache)
		if err != nil {
			t.Fatal(err)
		}
		was := regexp.MustCompile(`"time": "[^"]*"`)
		then := time.Now().Add(-age).Format(time.RFC3339Nano)
		if err := os.WriteFile(p.Cache, was.ReplaceAll(b, []byte(`"time": "`+then+`"`)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	aged(slowFor)
	probes(0, "it is broken, whenever that was")
	d.fails, d.silent, p.Limit = nil, true, p.Limit+1
	probes(1, "a guest that is slow")
	for _, age := range []time.Duration{slowFor, -time.Minute} {
		probes(0, "it has just been slow")
		aged(age)
		probes(1, fmt.Sprintf("it was slow %v ago", age))
	}
	p.Again = true
	probes(1, "it is to be tried again")
	d.silent = false
	probes(1, "it was repaired")
	probes(0, "it works again")
	if err := os.WriteFile(p.Cache, []byte(`{"best": {"wor`), 0o600); err != nil {
		t.Fatal(err)
	}
	probes(1, "the cache is cut short")
}

// TestNewComesBeforeTheVerdict: a tier whose driver is missing is not picked because of a cached verdict.
func TestNewComesBeforeTheVerdict(t *testing.T) {
	d := &driver{tier: "best"}
	p := newPicker(t, d, &driver{tier: "worst"})
	if got := pick(t, p, ""); got != "best" {
		t.Fatal(got)
	}
	p.Candidates[0].New = func() (Driver, error) { return nil, errors.New("no such device") }
	if got := pick(t, p, ""); got != "worst" {
		t.Errorf("picked %s", got)
	}
	if got := pick(t, p, "best"); !strings.Contains(got, "no such device") {
		t.Errorf("required: %s", got)
	}
}

// TestProbeIsCancelled: a cancelled probe ends soon and stores no verdict.
func TestProbeIsCancelled(t *testing.T) {
	d := &driver{tier: "best", silent: true}
	p := newPicker(t, d)
	p.Limit = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := p.Pick(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the pick ends with %v", err)
	}
	if _, err := os.Stat(p.Cache); err == nil {
		t.Error("there is a verdict")
	}
	if d.alive.Load() != 0 {
		t.Error("the machine was not destroyed")
	}
}

// TestReadyLimit checks the limit against times measured on hosts. For example, QEMU 10 on a host that is itself emulated
// starts in 0.2 s, and its guest is ready after 20 s.
func TestReadyLimit(t *testing.T) {
	for start, needs := range map[time.Duration]time.Duration{
		20 * time.Millisecond: 400 * time.Millisecond, 200 * time.Millisecond: 20 * time.Second, 3 * time.Second: 90 * time.Second,
	} {
		if limit := readyLimit(start); limit < 2*needs || limit > 10*time.Minute+needs {
			t.Errorf("after a start of %v the guest has %v; %v is what it needs", start, limit, needs)
		}
	}
}
