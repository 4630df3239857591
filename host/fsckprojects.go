package host

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/project/registry"
	"github.com/custody-project/custody/store"
)

// change is a change of a registered project, as an access log has it.
type change struct {
	project string
	version uint64
	digest  string
	who     string
	rm      bool // it was withdrawn
}

// projects checks the registered projects: their files, and that an access log of this host has each change with the same digest and author.
func (f *fsck) projects(ctx context.Context) error {
	r := registry.Registry{Dir: f.host.Projects()}
	all, problems := r.Check()
	for _, p := range problems {
		f.found("", 0, p)
	}
	f.checked.Projects = uint64(len(all))
	if len(all) == 0 {
		return nil
	}
	// Older changes may be in the access logs of the other home of a host with a service.
	elsewhere := f.host.Shared != "" || f.host.ManifestLog().Served() != nil
	recorded, err := f.changes(ctx)
	if err != nil {
		return err
	}
	for _, v := range all {
		want := []change{{v.Project, v.Number, v.Digest, v.Author, false}}
		if w := v.Withdrawn; w != nil {
			want = append(want, change{v.Project, v.Number, v.Digest, w.Author, true})
		}
		for _, c := range want {
			known := slices.ContainsFunc(recorded, func(r change) bool { return r.project == c.project && r.version == c.version && r.rm == c.rm })
			switch {
			case slices.Contains(recorded, c):
			case known:
				f.found("", 0, &registry.DamagedError{Path: r.Path(v), Err: errors.New("the access log has another digest or author of this version")})
			case !elsewhere && !f.removedAccesses():
				f.found("", 0, &registry.DamagedError{Path: r.Path(v), Err: errors.New("no access log has this version")})
			}
		}
	}
	return nil
}

// removedAccesses reports whether retention has removed access logs of this host, or parts of them.
func (f *fsck) removedAccesses() bool {
	of := func(run string) bool { return strings.HasPrefix(run, store.AccessPrefix) }
	for run := range f.deleted {
		if of(run) {
			return true
		}
	}
	return slices.ContainsFunc(f.pruned, of)
}

// changes returns the changes of projects in this host's access logs, which were verified.
func (f *fsck) changes(ctx context.Context) (all []change, err error) {
	for row, err := range f.host.Logs().Search(ctx, store.Search{Kinds: []audit.Kind{audit.KindAccess}, Text: `"project_digest"`}) {
		if err != nil {
			return nil, err
		}
		var ev audit.Event
		if err := json.Unmarshal(row.Body, &ev); err != nil || ev.Access == nil {
			continue // reported with its run
		}
		a := ev.Access
		all = append(all, change{a.Project, a.ProjectVersion, a.ProjectDigest, a.Who, strings.HasSuffix(a.Route, " rm")})
	}
	return all, nil
}
