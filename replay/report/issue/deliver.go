package issue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/custody-project/custody/audit/proof/statement"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/replay/report"
	"github.com/custody-project/custody/store"
)

// put writes one file of a report.
type put func(name string, write func(io.Writer) error) error

// deliver writes each file of a report: the report itself, the host's statement about it, and of each
// run a bundle that has both as well. by names the user who requested it; empty: this host.
// A live run has no bundle yet; of an access log the bundle shows the records about the report's tenant.
func (s Issuer) deliver(ctx context.Context, r *report.Report, by string, put put) error {
	files, err := r.Attachments()
	if err != nil {
		return err
	}
	about, err := r.Subjects()
	if err != nil {
		return err
	}
	key, err := s.Host.Keys().Signing()
	if err != nil {
		return err
	}
	if by == "" {
		by = key.Name()
	}
	if len(about) > 0 { // no one can sign for runs of which none verifies
		signed, err := r.Sign(key, by, r.Generated)
		if err != nil {
			return err
		}
		if err := put.data(report.Statement, signed); err != nil {
			return err
		}
	}
	for _, f := range files {
		if err := put.data(f.Name, f.Data); err != nil {
			return err
		}
	}
	for _, source := range r.Sources {
		if !source.Whole() {
			continue
		}
		o := host.BundleOptions{Attachments: files, By: by, About: slices.DeleteFunc(slices.Clone(about), func(o statement.Subject) bool { return o.Run == source.Run })}
		if err := s.bundle(ctx, source, r.Scope.Tenant, o, put); err != nil {
			return err
		}
	}
	return nil
}

func (p put) data(name string, data []byte) error {
	return p(name, func(w io.Writer) error { _, err := w.Write(data); return err })
}

// bundle writes the bundle of one run of a report about a tenant.
func (s Issuer) bundle(ctx context.Context, source report.Source, tenant string, o host.BundleOptions, put put) error {
	if !store.ValidRun(source.Run) {
		return fmt.Errorf("the store returned an invalid run name %.80q", source.Run)
	}
	run, err := s.Source.Run(ctx, "", source.Run)
	if err != nil {
		return err
	}
	if !s.Host.RunLogs().HasOf(store.TenantFilter(run.Tenant), run.ID) { // only the host that made a run can attach to it
		o.Attachments, o.About = nil, nil
		var unknown *host.NotEnrolledError
		if err := s.Host.Proofs().Bundles(ctx, store.TenantFilter(run.Tenant), run.ID); errors.As(err, &unknown) {
			return nil // nor could its verification be in the report
		} else if err != nil {
			return err
		}
	}
	if source.Class == store.Accesses {
		if o.Select, err = s.accessesOf(ctx, run, tenant); err != nil {
			return err
		}
	}
	return put(source.Run+".tar", func(w io.Writer) error {
		return s.Host.Proofs().Bundle(ctx, w, store.TenantFilter(run.Tenant), run.ID, o)
	})
}

// accessesOf selects the records of an access log that are about a tenant: the others are not for the report's readers.
func (s Issuer) accessesOf(ctx context.Context, log store.Run, tenant string) (*proof.Selection, error) {
	about := map[uint64]bool{}
	for row, err := range s.Source.Records(ctx, store.Query{Tenant: log.Tenant, Run: log.ID, Kinds: []audit.Kind{audit.KindAccess}}) {
		if err != nil {
			return nil, err
		}
		var r audit.Record
		if json.Unmarshal(row.Body, &r) == nil && r.Access != nil && r.Access.Tenant == tenant {
			about[row.Seq] = true
		}
	}
	return &proof.Selection{Shows: func(seq uint64) bool { return about[seq] }, What: "looks at the records of " + cmp.Or(tenant, "no tenant")}, nil
}
