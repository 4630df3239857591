package dnsproxy

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/dnsproxy/upstream"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/redact"

	"golang.org/x/mod/sumdb/note"
)

// childEnv makes the test binary run as a resolver, so that it can be measured as a separate process.
const childEnv = "CUSTODY_DNS_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := child(dir, os.Getenv("CUSTODY_DNS_UPSTREAM")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// child runs a resolver with a record in dir and rules that allow all names of the benchmarks.
func child(dir, server string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var live netpolicy.Live
	p, err := benchPolicy()
	if err != nil {
		return err
	}
	live.Set(p)
	skey, _, err := note.GenerateKey(nil, "custody-bench")
	if err != nil {
		return err
	}
	signer, err := note.NewSigner(skey)
	if err != nil {
		return err
	}
	l, err := wal.Create(filepath.Join(dir, testRun), wal.Options{Run: testRun, Sealer: statement.NewSealer(signer, statement.Facts{})})
	if err != nil {
		return err
	}
	red := redact.New(make([]byte, 32))
	for i := range 20 {
		if err := red.Add(fmt.Sprintf("secret-%d", i), fmt.Appendf(nil, "a-credential-of-some-length-%08d", i)); err != nil {
			return err
		}
	}
	var servers []upstream.Server
	if server != "" {
		s, err := upstream.ParseServer(server)
		if err != nil {
			return err
		}
		servers = append(servers, s)
	}
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(pc.LocalAddr())
	s := New(Config{
		Live: &live, Names: constant{}, Recorder: recorder{audit.NewRecorder(l, red), l},
		Upstream: upstream.New(servers, upstream.Options{}), Run: testRun,
	})
	if err := s.Serve(ctx, pc, ln); err != nil {
		return err
	}
	return l.Close(context.Background(), wal.Sealed)
}

func benchPolicy() (*netpolicy.Policy, error) {
	var rules []netpolicy.Rule
	for pattern, mode := range map[string]netpolicy.Mode{"*.gatew.test": netpolicy.Gateway, "*.direc.test": netpolicy.Direct} {
		p, err := netpolicy.ParsePattern(pattern)
		if err != nil {
			return nil, err
		}
		rules = append(rules, netpolicy.Rule{Pattern: p, Mode: mode})
	}
	return netpolicy.New(rules)
}

// constant is a table of names with constant answers, so that its costs, which other benchmarks measure, do not count.
type constant struct{}

func (constant) Synthetic(string) (netip.Addr, error) { return netpolicy.FirstSynthetic, nil }
func (constant) Open(string, netip.Addr, netpolicy.Mode, time.Time, uint64) error {
	return nil
}

// process is a server under measurement. It runs with a high priority, like the load.
type process struct {
	addr string
	pid  int
}

// processors are the lists of processors on which a process may run.
type processors struct{ cpus, procs string }

var (
	one = processors{"0", "GOMAXPROCS=1"}
	all = processors{fmt.Sprintf("0-%d", runtime.NumCPU()-1), ""}
)

func startCustody(t testing.TB, on processors, server string) process {
	t.Helper()
	cmd := exec.Command("nice", "-n", urgent, "taskset", "-c", on.cpus, os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+t.TempDir(), "CUSTODY_DNS_UPSTREAM="+server, on.procs)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Signal(syscall.SIGTERM); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	check(t, err)
	return process{strings.TrimSpace(line), cmd.Process.Pid}
}

// startCoreDNS builds CoreDNS, which takes a minute the first time, and starts it.
func startCoreDNS(t testing.TB, on processors, corefile string) process {
	t.Helper()
	cache, err := filepath.Abs("../.cache")
	check(t, err)
	bin := filepath.Join(cache, "coredns")
	build := exec.Command("go", "build", "-C", "../hack/coredns", "-trimpath", "-o", bin, ".")
	build.Stderr = os.Stderr
	check(t, build.Run())
	probe, err := net.ListenPacket("udp", "127.0.0.1:0")
	check(t, err)
	addr := probe.LocalAddr().(*net.UDPAddr)
	probe.Close()
	conf := filepath.Join(t.TempDir(), "Corefile")
	check(t, os.WriteFile(conf, fmt.Appendf(nil, ".:%d {\n bind 127.0.0.1\n errors\n %s\n}\n", addr.Port, corefile), 0o600))
	cmd := exec.Command("nice", "-n", urgent, "taskset", "-c", on.cpus, bin, "-quiet", "-conf", conf)
	cmd.Env = append(os.Environ(), on.procs)
	cmd.Stderr = os.Stderr
	check(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Signal(syscall.SIGTERM); cmd.Wait() })
	awaitPort(t, addr.String())
	return process{addr.String(), cmd.Process.Pid}
}

func awaitPort(t testing.TB, addr string) {
	t.Helper()
	for range 200 {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("no server listens on %s", addr)
}

// BenchmarkResolver compares the resolver with CoreDNS 1.15.0. Both run as processes on processor 0; the load and the
// upstream server run on another. q/cpu-s is queries per second of processor time, the capacity of one core; it does not
// depend on other load. The resolver records: each query is redacted against 20 values, encoded, written and fsynced
// before its answer is sent.
//
//	synthetic  a gateway name              against template
//	warm       1,000 direct names, cached  against forward behind cache
//	cold       new direct names            against forward behind cache
func BenchmarkResolver(b *testing.B) {
	up := newAuthority(b, 1, 1, 300)
	server := "udp://" + up.addr.String()
	forward := fmt.Sprintf("cache {\n success 65536\n }\n forward . %s", up.addr)
	for _, c := range []struct {
		name, corefile string
		question       func(int) string
		n              int
	}{
		{"synthetic", "template IN A {\n answer \"{{ .Name }} 60 IN A 198.18.1.0\"\n }", func(i int) string { return fmt.Sprintf("n%07d.gatew.test", i%1000) }, 200_000},
		{"warm", forward, func(i int) string { return fmt.Sprintf("n%07d.direc.test", i%1000) }, 200_000},
		{"cold", forward, func(i int) string { return fmt.Sprintf("n%07d.direc.test", i) }, 100_000},
	} {
		b.Run(c.name+"/custody", func(b *testing.B) { saturate(b, startCustody(b, one, server), c.question, c.n) })
		b.Run(c.name+"/coredns", func(b *testing.B) { saturate(b, startCoreDNS(b, one, c.corefile), c.question, c.n) })
	}
}

func saturate(b *testing.B, p process, question func(int) string, n int) {
	keepTo(b, runtime.NumCPU()-1)
	l := &load{server: p.addr, name: question}
	l.closed(b, 2000, 4, 64) // warm-up
	var lost int64
	cpu := cpuOf(b, p.pid)
	for b.Loop() {
		lost += l.closed(b, n, 4, 50)
	}
	cpu = cpuOf(b, p.pid) - cpu
	total := float64(n * b.N)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(total/cpu.Seconds(), "q/cpu-s")
	b.ReportMetric(total/b.Elapsed().Seconds(), "q/s")
	b.ReportMetric(float64(rss(b, p.pid))/(1<<20), "MiB")
	b.ReportMetric(float64(lost), "lost")
}

// BenchmarkChurn sends 5,000 queries a second for names with a thousand addresses, 16 in an answer with TTL 0, so that
// each query goes upstream. The upstream server and the disk are measured alone for comparison: authority without the
// resolver, and disk with fsyncs of a few records. The three take turns of one second; the results are medians over the
// turns, because other load on the machine distorts some of them.
func BenchmarkChurn(b *testing.B) {
	const turns = 15
	up := newAuthority(b, 16, 1000, 0)
	for b.Loop() {
		who := []string{"authority", "custody", "coredns"}
		at := []string{up.addr.String(), startCustody(b, all, "udp://"+up.addr.String()).addr, startCoreDNS(b, all, "forward . "+up.addr.String()).addr}
		hurry(b)
		figures, lost := map[string][]time.Duration{}, map[string]int{}
		for turn := range turns {
			synced := fsyncs(b, 200)
			figures["disk-p50-ms"] = append(figures["disk-p50-ms"], quantile(synced, .5))
			figures["disk-p99-ms"] = append(figures["disk-p99-ms"], quantile(synced, .99))
			for i, name := range who {
				l := &load{server: at[i], name: func(i int) string { return fmt.Sprintf("n%07d.direc.test", i%1000) }}
				if turn == 0 {
					l.closed(b, 2000, 4, 16)
				}
				took := l.paced(b, 5000, time.Second)
				lost[name] += 5000 - len(took)
				figures[name+"-p50-ms"] = append(figures[name+"-p50-ms"], quantile(took, .5))
				figures[name+"-p99-ms"] = append(figures[name+"-p99-ms"], quantile(took, .99))
			}
		}
		b.ReportMetric(0, "ns/op")
		for name, n := range lost {
			b.ReportMetric(float64(n)/(50*turns), name+"-lost-%")
		}
		for name, list := range figures {
			slices.Sort(list)
			b.ReportMetric(float64(quantile(list, .5).Microseconds())/1000, name)
		}
	}
}

// fsyncs writes and fsyncs 3 KB n times, 5 ms apart, and returns the sorted durations.
func fsyncs(b *testing.B, n int) (out []time.Duration) {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "f"))
	check(b, err)
	defer f.Close()
	for range n {
		time.Sleep(5 * time.Millisecond)
		begin := time.Now()
		_, err := f.Write(make([]byte, 3000))
		check(b, err)
		check(b, f.Sync())
		out = append(out, time.Since(begin))
	}
	slices.Sort(out)
	return out
}

// BenchmarkGrowth asks for a thousand new names a second for a minute, half of them gateway names and half direct names,
// and then for as many again. The resolver's memory is bounded, so it must not grow in the second minute.
func BenchmarkGrowth(b *testing.B) {
	up := newAuthority(b, 4, 1000, 60)
	p := startCustody(b, all, "udp://"+up.addr.String())
	l := &load{server: p.addr, name: func(i int) string { return fmt.Sprintf("n%07d.%s.test", i, [...]string{"gatew", "direc"}[i%2]) }}
	l.closed(b, 2000, 4, 16)
	for b.Loop() {
		b.ReportMetric(float64(rss(b, p.pid))/(1<<20), "MiB-before")
		l.paced(b, 1000, time.Minute)
		b.ReportMetric(float64(rss(b, p.pid))/(1<<20), "MiB-1min")
		took := l.paced(b, 1000, time.Minute)
		b.ReportMetric(float64(rss(b, p.pid))/(1<<20), "MiB-2min")
		b.ReportMetric(float64(quantile(took, .99).Microseconds())/1000, "p99-ms")
	}
}
