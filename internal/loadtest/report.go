package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

// report measures one thing after the other. Each figure stands beside what the
// same machine does in the same run without Custody: the ratio is what counts,
// the rates describe how busy or slow the machine was.
type report struct {
	events  int
	queried int
	dir     string
	dsn     string
	only    string
	profile string

	rows []row
}

// row is one figure.
type row struct {
	what, figure string
	// bare is the yardstick, and ratio ours against it; both may be empty.
	bare, ratio string
}

func reportCommand(f *flag.FlagSet) func(context.Context) error {
	r := &report{}
	f.IntVar(&r.events, "events", 200_000, "events of each measurement")
	f.IntVar(&r.queried, "queried", 1_000_000, "events in the store that is searched")
	f.StringVar(&r.dir, "dir", "", "scratch directory on the disk that is measured; default a temporary one")
	f.StringVar(&r.dsn, "clickhouse", "", "DSN of a ClickHouse; without it none is measured")
	f.StringVar(&r.profile, "profile", "", "write a CPU profile of all that is measured to this file")
	f.StringVar(&r.only, "only", "", "measure only these, by comma: "+strings.Join(names(), ","))
	return r.run
}

// measurement is one part of the report.
type measurement struct {
	name string
	run  func(r *report, ctx context.Context, dir string) error
}

func measurements() []measurement {
	return []measurement{
		{"durable", (*report).durable},
		{"sqlite", (*report).sqliteEnd},
		{"clickhouse", (*report).clickhouseEnd},
		{"verify", (*report).verify},
		{"ocsf", (*report).ocsf},
		{"fresh", (*report).fresh},
		{"query", (*report).query},
	}
}

func names() (names []string) {
	for _, m := range measurements() {
		names = append(names, m.name)
	}
	return names
}

func (r *report) run(ctx context.Context) error {
	dir, err := os.MkdirTemp(r.dir, "loadtest-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	stop, err := startProfile(r.profile)
	if err != nil {
		return err
	}
	defer stop()
	load := readLoad()
	for _, m := range measurements() {
		if r.only != "" && !slices.Contains(strings.Split(r.only, ","), m.name) {
			continue
		}
		sub, err := os.MkdirTemp(dir, m.name+"-")
		if err != nil {
			return err
		}
		began := time.Now()
		if err := m.run(r, ctx, sub); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		fmt.Fprintf(os.Stderr, "loadtest: %s measured in %.1f s\n", m.name, time.Since(began).Seconds())
		if err := os.RemoveAll(sub); err != nil {
			return err
		}
	}
	fmt.Printf("%s, %d cores, load %s before and %s after, %s events of %d kinds\n\n",
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), load, readLoad(), count(r.events), 6)
	return r.print(os.Stdout)
}

func (r *report) add(what, figure, bare, ratio string) {
	r.rows = append(r.rows, row{what, figure, bare, ratio})
}

// print writes the figures as a Markdown table.
func (r *report) print(w io.Writer) error {
	lines := []string{"| what | figure | beside it | ratio |", "| --- | --- | --- | --- |"}
	for _, row := range r.rows {
		lines = append(lines, fmt.Sprintf("| %s | %s | %s | %s |", row.what, row.figure, row.bare, row.ratio))
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

// startProfile writes a CPU profile to path until stop; an empty path means none.
func startProfile(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { pprof.StopCPUProfile(); f.Close() }, nil
}

// readLoad returns the load average of the last minute.
func readLoad() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	load, _, _ := strings.Cut(string(text), " ")
	return load
}

// count writes a number as people read it.
func count(n int) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func perSecond(n int, d time.Duration, unit string) string {
	return count(int(float64(n)/d.Seconds())) + " " + unit + "/s"
}

// ratio returns how fast ours was, where bare is 1.
func ratio(ours, bare time.Duration) string {
	return fmt.Sprintf("%.2f", bare.Seconds()/ours.Seconds())
}

// percentiles returns p50 and p99 of what is not empty.
func percentiles(d []time.Duration) (p50, p99 time.Duration, err error) {
	if len(d) == 0 {
		return 0, 0, errors.New("nothing was measured")
	}
	slices.Sort(d)
	return d[len(d)/2], d[len(d)*99/100], nil
}

// micros returns what one of n took, in microseconds.
func micros(d time.Duration, n int) string {
	return fmt.Sprintf("%.1f us", float64(d.Microseconds())/float64(n))
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }
