// Package issue issues the signed reports of one host: it chooses and verifies the runs, builds the report, and writes
// its files with a bundle of each run beside them.
package issue

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/replay/report"
	"github.com/custody-project/custody/store"
)

// Issuer issues reports. It is safe for concurrent use if Source is.
type Issuer struct {
	Host    *host.Host
	Source  host.Reader // has the runs
	Version string      // of the program
}

// Verify verifies the runs as they are now, for Build.
func (s Issuer) Verify(ctx context.Context, runs []store.Run) []report.Run {
	var all []report.Run
	for _, run := range runs {
		all = append(all, s.verify(ctx, run))
	}
	return all
}

func (s Issuer) verify(ctx context.Context, run store.Run) report.Run {
	found, err := s.Host.Checks().VerifyTrusted(ctx, s.Source, run)
	return report.Run{Run: run, Verification: report.Verified(found, err, time.Now().UTC())}
}

// Build makes a report of in's runs, which have been verified and are all of one tenant. It adds to in the runs' records
// and the access logs that can contain who read them.
func (s Issuer) Build(ctx context.Context, in report.Input) (*report.Report, error) {
	if len(in.Runs) == 0 {
		return nil, errors.New("there are no runs to report on")
	}
	marks, err := s.Host.Checks().Marks(s.Source)
	if err != nil {
		return nil, err
	}
	rows := func(run store.Run) replay.Rows {
		return store.WithMarks(ctx, s.Source.Records(ctx, store.Query{Tenant: run.Tenant, Run: run.ID}), marks)
	}
	first := in.Runs[0].Run
	began := first.Start
	for i, run := range in.Runs {
		if run.Run.Tenant != first.Tenant {
			return nil, fmt.Errorf("a report is about the runs of one tenant: %s is of %s, %s of %s", first.ID, store.TenantFilter(first.Tenant), run.Run.ID, store.TenantFilter(run.Run.Tenant))
		}
		if run.Run.Start.Before(began) {
			began = run.Run.Start
		}
		in.Runs[i].Rows = rows(run.Run)
	}
	in.Tenant = first.Tenant
	in.Generated, in.Version = time.Now().UTC(), s.Version
	logs, err := s.Source.Runs(ctx, store.Filter{Class: store.Accesses, From: began.Add(-host.AccessDay)})
	if err != nil {
		return nil, err
	}
	for _, log := range logs {
		access := s.verify(ctx, log)
		access.Rows = rows(log)
		in.Access = append(in.Access, access)
	}
	return report.Build(ctx, in)
}

// WriteDir writes a report's files into the directory, each of them whole or not at all. A missing directory is made.
func (s Issuer) WriteDir(ctx context.Context, dir string, r *report.Report) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	out, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer out.Close()
	return s.deliver(ctx, r, "", func(name string, write func(io.Writer) error) error {
		if err := out.MkdirAll(path.Dir(name), 0o700); err != nil {
			return err
		}
		dir, err := out.OpenRoot(path.Dir(name))
		if err != nil {
			return err
		}
		defer dir.Close()
		return regular.ReplaceIn(dir, path.Base(name), write)
	})
}

// WriteZip writes a report's files as a ZIP archive. by names the user who requested it.
func (s Issuer) WriteZip(ctx context.Context, w io.Writer, r *report.Report, by string) error {
	z := zip.NewWriter(w)
	err := s.deliver(ctx, r, by, func(name string, write func(io.Writer) error) error {
		f, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store, Modified: r.Generated})
		if err != nil {
			return err
		}
		return write(f)
	})
	return errors.Join(err, z.Close())
}

// RetiredKeys returns the older public keys of this host that signed runs of a report: a verifier needs them beside
// the present one.
func (s Issuer) RetiredKeys(r *report.Report) ([]string, error) {
	var keys []string
	seen := map[string]bool{}
	for _, source := range r.Sources {
		if !source.Whole() || !store.ValidRun(source.Run) {
			continue
		}
		if _, err := os.Stat(s.Host.RunDir(source.Run)); err != nil {
			continue // another host's
		}
		key, retired, err := s.Host.Keys().Of(source.Run)
		if err != nil {
			return nil, err
		}
		if retired && !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	return keys, nil
}
