package quota

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/internal/regular"
)

// ledger keeps the LLM tokens of a day in a file, so that they count after a restart of the process. Each line is a charge: the day, the
// tenant, the project and the tokens, separated by tabs. A line is in the file when add has returned, and stays when the process is killed; a
// crash of the machine can lose the last ones.
type ledger struct {
	path string

	mu   sync.Mutex // guards the fields below
	file *os.File   // nil after close
	size int64
	most int64 // the size above which the file is replaced
	day  int64
	sums map[owner]int64 // of the day
}

type owner struct{ tenant, project string }

// Sizes of the file in bytes: above maxLedger it is not read, and rewriteLedger is the least at which it is replaced.
const (
	maxLedger     = 1 << 30
	rewriteLedger = 4 << 20
)

// openLedger reads the charges of now's day, and drops those of other days. The caller closes the ledger.
func openLedger(path string, now time.Time) (*ledger, error) {
	l := &ledger{path: path, day: now.Unix() / secondsOfDay, sums: map[owner]int64{}}
	if err := l.read(); err != nil {
		return nil, fmt.Errorf("the LLM tokens of the day: %w", err)
	}
	return l, l.rewrite()
}

func (l *ledger) read() error {
	f, err := regular.Open(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() > maxLedger {
		return errors.Join(err, fmt.Errorf("%s is too large: remove it, and the tokens count from 0 again", l.path))
	}
	r := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil // the rest of the line was not written before a crash
		}
		if err != nil {
			return err
		}
		if err := l.line(strings.TrimSuffix(line, "\n")); err != nil {
			return fmt.Errorf("%s, line %d: %w: remove the line", l.path, n, err)
		}
	}
}

// line adds a line of the file.
func (l *ledger) line(text string) error {
	fields := strings.Split(text, "\t")
	if len(fields) != 4 {
		return fmt.Errorf("%d fields in place of 4", len(fields))
	}
	day, err1 := strconv.ParseInt(fields[0], 10, 64)
	tokens, err2 := strconv.ParseInt(fields[3], 10, 64)
	if err := errors.Join(err1, err2); err != nil || tokens < 0 {
		return errors.Join(err, errors.New("it is no charge"))
	}
	if day == l.day {
		l.sum(owner{fields[1], fields[2]}, tokens)
	}
	return nil
}

func (l *ledger) sum(o owner, tokens int64) {
	d := daily{l.day, l.sums[o]}
	d.add(tokens, time.Unix(l.day*secondsOfDay, 0))
	l.sums[o] = d.count
}

// rewrite replaces the file by one with a line for each sum. The caller holds mu.
func (l *ledger) rewrite() error {
	var text strings.Builder
	for o, tokens := range l.sums {
		text.WriteString(l.lineOf(o, tokens))
	}
	if err := durable.Replace(l.path, []byte(text.String()), 0o600); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	if l.file != nil {
		l.file.Close()
	}
	l.file, l.size = f, int64(text.Len())
	l.most = max(rewriteLedger, 2*l.size)
	return nil
}

func (l *ledger) lineOf(o owner, tokens int64) string {
	return fmt.Sprintf("%d\t%s\t%s\t%d\n", l.day, o.tenant, o.project, tokens)
}

// add writes a charge. Names of tenants and projects have no control characters.
func (l *ledger) add(o owner, tokens int64, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return ErrClosed
	}
	if day := now.Unix() / secondsOfDay; day != l.day {
		l.day, l.sums = day, map[owner]int64{}
	}
	l.sum(o, tokens)
	n, err := io.WriteString(l.file, l.lineOf(o, tokens))
	l.size += int64(n)
	if err != nil {
		return errors.Join(err, l.rewrite()) // a part of the line may have been written
	}
	if l.size > l.most {
		return l.rewrite()
	}
	return nil
}

func (l *ledger) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.file
	l.file = nil
	return f.Close()
}
