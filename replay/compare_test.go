package replay

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

func framesSeq(frames []store.Frame) iter.Seq2[store.Frame, error] {
	return func(yield func(store.Frame, error) bool) {
		for _, f := range frames {
			if !yield(f, nil) {
				return
			}
		}
	}
}

func rowSlice(t *testing.T, frames []store.Frame) (rows []store.Row) {
	t.Helper()
	for row, err := range rowsOf(frames) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

func asRows(rows []store.Row) Rows {
	return func(yield func(store.Row, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func TestCompareStore(t *testing.T) {
	log := storetest.Frames("r-1", storetest.Events(20))
	other := storetest.Frames("r-1", storetest.Events(25))
	for _, tc := range []struct {
		name   string
		change func([]store.Row) []store.Row
		want   string // seqs and errors
	}{
		{"equal", func(r []store.Row) []store.Row { return r }, ""},
		{"body", func(r []store.Row) []store.Row { r[4].Body = other[19].Body; return r }, fmt.Sprint("5 ", ErrAltered)},
		{"salt", func(r []store.Row) []store.Row { r[4].Salt[2]++; return r }, fmt.Sprint("5 ", ErrSalt)},
		{"kind", func(r []store.Row) []store.Row { r[4].Kind = audit.KindVM; return r }, fmt.Sprint("5 ", ErrColumns)},
		{"time", func(r []store.Row) []store.Row { r[4].Time = r[5].Time; return r }, fmt.Sprint("5 ", ErrColumns)},
		{"first gone", func(r []store.Row) []store.Row { return r[1:] }, fmt.Sprint("1 ", ErrMissing)},
		{"two gone", func(r []store.Row) []store.Row { return slices.Delete(r, 6, 8) }, fmt.Sprint("7 ", ErrMissing, "; 8 ", ErrMissing)},
		{"tail gone", func(r []store.Row) []store.Row { return r[:19] }, fmt.Sprint("20 ", ErrMissing)},
		{"all gone", func(r []store.Row) []store.Row { return nil }, "1 "},
		{"more", func(r []store.Row) []store.Row { return append(r, rowSlice(t, other[20:])...) }, fmt.Sprint("21 ", ErrExtra)},
		{"swapped", func(r []store.Row) []store.Row { r[3], r[4] = r[4], r[3]; return r }, fmt.Sprint("4 ", ErrMissing)},
		{"doubled", func(r []store.Row) []store.Row { return slices.Insert(r, 3, r[2]) }, fmt.Sprint("3 ", ErrOrder)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, err := CompareStore(t.Context(), asRows(tc.change(rowSlice(t, log))), framesSeq(log))
			if n != 20 {
				t.Errorf("%d frames were compared", n)
			}
			if got := named(err); tc.want == "" && err != nil || !strings.HasPrefix(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func named(err error) string {
	var d *Differences
	if !errors.As(err, &d) {
		return ""
	}
	var all []string
	for _, one := range d.Named {
		all = append(all, fmt.Sprint(one.Seq, " ", one.Err))
	}
	return strings.Join(all, "; ")
}

func TestCompareBehind(t *testing.T) {
	log := storetest.Frames("r-1", storetest.Events(20))
	rows := rowSlice(t, log)
	for name, tc := range map[string]struct {
		rows          []store.Row
		total, behind int
	}{
		"lag":          {rows[:15], 5, 5},
		"lag and hole": {slices.Concat(rows[:3], rows[5:15]), 7, 5},
		"hole":         {slices.Concat(rows[:3], rows[5:]), 2, 0},
		"nothing yet":  {nil, 20, 20},
	} {
		_, err := CompareStore(t.Context(), asRows(tc.rows), framesSeq(log))
		var d *Differences
		if !errors.As(err, &d) || d.Total != tc.total || d.Behind != tc.behind {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestCompareNamesAtMost(t *testing.T) {
	_, err := CompareStore(t.Context(), asRows(nil), framesSeq(storetest.Frames("r-1", storetest.Events(500))))
	var d *Differences
	if !errors.As(err, &d) || d.Total != 500 || len(d.Named) != maxNamed || !errors.Is(err, ErrMissing) {
		t.Errorf("got %.200v", err)
	}
}

func TestCompareThatCannotRead(t *testing.T) {
	broken := errors.New("injected")
	log := storetest.Frames("r-1", storetest.Events(20))
	badRows := func(yield func(store.Row, error) bool) { yield(store.Row{}, broken) }
	badLog := func(yield func(store.Frame, error) bool) { yield(store.Frame{}, broken) }
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, compare := range map[string]func() error{
		"rows": func() error { _, err := CompareStore(t.Context(), badRows, framesSeq(log)); return err },
		"log":  func() error { _, err := CompareStore(t.Context(), rowsOf(log), badLog); return err },
	} {
		if err := compare(); !errors.Is(err, broken) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := CompareStore(ended, rowsOf(log), framesSeq(log)); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: got %v", err)
	}
}

func TestCompareSummary(t *testing.T) {
	log := storetest.Frames("r-1", storetest.Events(20))
	good := summary(log)
	if err := CompareSummary(good, framesSeq(log)); err != nil {
		t.Fatal(err)
	}
	zero := 0
	for field, change := range map[string]func(*store.Run){
		"exit_code": func(r *store.Run) { r.ExitCode = &zero },
		"status":    func(r *store.Run) { r.Status = store.Running },
		"events":    func(r *store.Run) { r.Events-- },
		"findings":  func(r *store.Run) { r.Findings++ },
		"start":     func(r *store.Run) { r.Start = r.Start.Add(1) },
		"end":       func(r *store.Run) { r.End = nil },
		"project":   func(r *store.Run) { r.Project = "" },
		"tier":      func(r *store.Run) { r.Tier = "firecracker" },
	} {
		bad := good
		change(&bad)
		if err := CompareSummary(bad, framesSeq(log)); !errors.Is(err, ErrSummary) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: got %v", field, err)
		}
	}
}
