package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/redact/pattern"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/api"
	"github.com/custody-project/custody/replay/report"
	"github.com/custody-project/custody/replay/report/issue"
	"github.com/custody-project/custody/replay/views"
	"github.com/custody-project/custody/replay/web"
	"github.com/custody-project/custody/store"
)

// backend answers the API's requests from the state of a host. It is safe for concurrent use.
type backend struct {
	host    *host.Host
	options HostOptions
}

// open makes the parts of s; s.close closes those that were made.
func (b *backend) open(s *service) error {
	tokens, err := access.OpenTokens(s.dir)
	if err != nil {
		return err
	}
	log := b.options.Access
	if log == nil {
		if log, err = AccessLog(b.host, b.options.Version); err != nil {
			return err
		}
		s.log = log
	}
	s.gate, err = access.New(access.Options{Config: s.Config, Tokens: tokens, Tenant: b.host.Config().Tenant, Local: b.tenants, Recorder: log, LinkFor: s.LinkFor, Warn: s.Notice})
	if err != nil {
		return err
	}
	s.api, err = api.New(api.Options{
		Open: b.reader, Ahead: b.ahead, Verify: b.verify, Marks: b.marks, Bundle: b.bundle, Proof: b.proof, Report: b.report, Frameworks: frameworks(),
		Exports: s.Exports, ExportDir: s.dir, Notes: notebook{log}, Views: views.Open(b.host.Views()), Tokens: tokens, Tenant: b.host.Config().Tenant, Sandboxes: b.options.Sandboxes, Serves: b.host.Config().Serves, PortOf: s.Config.PortHost, PortName: s.Config.PortName, Gate: s.gate, OIDC: s.Config.OIDC != nil, Assets: s.gate.Host(web.Handler()), Log: s.Log,
	})
	return err
}

// AccessLog returns the log of accesses to a host's records. version is the program's.
func AccessLog(h *host.Host, version string) (*host.AccessLog, error) {
	tag, err := h.TagKey()
	if err != nil {
		return nil, err
	}
	redactor, err := pattern.NewRedactor(tag)
	if err != nil {
		return nil, err
	}
	return h.AccessLog(redactor, version), nil
}

// tenants are those in which the login link grants a role: the host's own, and those under which this host
// recorded runs before host.yaml named another. The tenant of options.Run is the first.
func (b *backend) tenants(ctx context.Context) []string {
	all := []string{b.host.Config().Tenant}
	st, err := b.host.Reader(ctx)
	if err != nil {
		b.options.Notice(fmt.Sprintf("the store cannot be read, so the link shows the host's own tenant only: %v", err))
		return all
	}
	defer st.Close()
	runs, err := st.Runs(ctx, store.Filter{})
	if err != nil {
		b.options.Notice(fmt.Sprintf("the runs cannot be listed, so the link shows the host's own tenant only: %v", err))
	}
	for _, run := range runs {
		if !slices.Contains(all, run.Tenant) && b.host.RunLogs().HasOf(store.TenantFilter(run.Tenant), run.ID) {
			all = append(all, run.Tenant)
		}
	}
	slices.Sort(all[1:])
	target := b.options.Run
	if i := slices.Index(all, target.Tenant); target.ID != "" && i > 0 {
		all[0], all[i] = all[i], all[0]
	}
	return all
}

func (b *backend) reader(ctx context.Context) (api.Source, error) { return b.host.Reader(ctx) }

func (b *backend) ahead(ctx context.Context, src api.Source, run store.Run) (api.Records, error) {
	return b.host.Ahead(ctx, src, run)
}

// marks returns what marks the rows of a search: whether they are what a host signed.
func (b *backend) marks(ctx context.Context) (api.Marker, error) {
	st, err := b.host.Reader(ctx)
	if err != nil {
		return nil, err
	}
	m, err := b.host.Checks().Marks(st)
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return marker{m, st}, nil
}

type marker struct {
	*host.Marks
	host.Reader
}

// verify checks a run with the keys that this host trusts.
func (b *backend) verify(ctx context.Context, run store.Run) (proof.Report, error) {
	st, err := b.host.Reader(ctx)
	if err != nil {
		return proof.Report{}, err
	}
	found, err := b.host.Checks().VerifyTrusted(ctx, st, run)
	return found, errors.Join(err, st.Close())
}

// bundle writes the evidence of a run, or of a part of it.
func (b *backend) bundle(ctx context.Context, w io.Writer, run store.Run, part api.Selection) error {
	o := host.BundleOptions{Since: part.Since, By: part.By}
	if part.First > 0 || part.Last > 0 {
		last := part.Last
		if last == 0 {
			last = run.LastSeq
		}
		o.Select = &proof.Selection{Context: true, What: fmt.Sprintf("seq %d to %d", part.First, last),
			Shows: func(seq uint64) bool { return part.First <= seq && seq <= last }}
	}
	err := b.host.Proofs().Bundle(ctx, w, store.TenantFilter(run.Tenant), run.ID, o)
	if unknown := new(host.NotEnrolledError); errors.As(err, &unknown) {
		return access.NewProblem(http.StatusConflict, "host-unknown", unknown.Error(), unknown.Hint())
	}
	if errors.Is(err, proof.ErrOtherHost) {
		return access.NewProblem(http.StatusConflict, "host-other", err.Error(), "ask for the whole run")
	}
	return err
}

// proof proves one record.
func (b *backend) proof(ctx context.Context, run store.Run, seq uint64) (proof.RecordProof, error) {
	return b.host.Proofs().OfRecord(ctx, store.TenantFilter(run.Tenant), run.ID, seq)
}

// notebook records notes in the access log.
type notebook struct{ *host.AccessLog }

// Note implements api.Notes.
func (n notebook) Note(ctx context.Context, note audit.Note) (audit.Noted, error) {
	noted, err := n.AccessLog.Note(ctx, note)
	if errors.Is(err, host.ErrOtherTenant) {
		return noted, access.NewProblem(http.StatusConflict, "other-tenant", err.Error(), "note it at a host of the run's tenant, or of none")
	}
	return noted, err
}

// frameworks are those that a report can be made for.
func frameworks() (names []string) {
	for _, f := range report.Frameworks() {
		names = append(names, f.ID)
	}
	return names
}

// report writes a signed report in the format that the request names.
func (b *backend) report(ctx context.Context, w io.Writer, q api.ReportRequest) error {
	st, err := b.host.Reader(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	in := report.Input{Framework: q.Framework, From: q.From, To: q.To}
	for _, run := range q.Runs {
		v := run.Verification
		in.Runs = append(in.Runs, report.Run{Run: run.Run, Verification: report.Verification{
			State: report.State(v.State), Name: v.Name, Number: v.Number, Text: v.Text, At: v.At, Report: run.Report,
		}})
	}
	issuer := issue.Issuer{Host: b.host, Source: st, Version: b.options.Version}
	r, err := issuer.Build(ctx, in)
	switch {
	case err != nil:
		return err
	case q.Format == "html":
		return r.HTML(w)
	case q.Format == "json":
		return r.JSON(w)
	}
	return issuer.WriteZip(ctx, w, r, q.By)
}
