//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/custody-project/custody/command"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/vmm/template"
)

type templateCmd struct {
	Build templateBuildCmd `cmd:"" help:"Make a template: base from Debian, or one from an image or a directory."`
	Ls    templateLsCmd    `cmd:"" help:"List the templates."`
	Show  templateShowCmd  `cmd:"" help:"Show what a template was made from."`
	Rm    templateRmCmd    `cmd:"" help:"Remove a template."`
}

type templateBuildCmd struct {
	Name string `arg:"" help:"Name of the template; base needs no source."`
	OCI  string `name:"oci" type:"path" placeholder:"FILE|LAYOUT" help:"From a docker-save archive or an OCI image layout." xor:"source"`
	Dir  string `type:"path" placeholder:"DIR" help:"From the root directory of a userland." xor:"source"`

	From string `placeholder:"TEMPLATE" help:"Copy another template; add --packages, --add or both." xor:"source"`
	Add  string `type:"existingdir" placeholder:"DIR" help:"With --from: copy the files of this directory over the userland, as root's."`

	Packages []string `placeholder:"NAME" help:"Debian's userland of base, or that of --from, with these packages too; NAME=VERSION fixes a version."`
	Suite    string   `placeholder:"NAME" help:"Debian's userland of this release (default bookworm). The kernel stays bookworm's."`
	Mirror   string   `placeholder:"URL" help:"Fetch Debian's userland from this mirror (default: as the host's apt does)."`
}

// source returns the source of the template.
func (c templateBuildCmd) source(s template.Store) (template.Source, error) {
	debian := template.Base{Packages: c.Packages, Suite: c.Suite, Mirror: c.Mirror}
	asked := len(c.Packages) > 0 || c.Suite != "" || c.Mirror != ""
	switch {
	case c.From == "" && c.Add != "":
		return nil, command.Usage(errors.New("--add copies files over the userland of another template: name it with --from"))
	case c.From != "" && c.From == c.Name:
		return nil, command.Usage(fmt.Errorf("template %s cannot be built on top of itself: give the new one another name", c.Name))
	case c.From != "" && c.Suite != "":
		return nil, command.Usage(errors.New("--suite does not go with --from: the userland has the release of the other template"))
	case c.From != "":
		src := &template.Layered{Store: s, From: c.From, Packages: c.Packages, Mirror: c.Mirror, Files: c.Add}
		if err := src.Check(); err != nil {
			return nil, command.Usage(err)
		}
		return src, nil
	case (c.OCI != "" || c.Dir != "") && asked:
		return nil, command.Usage(errors.New("--packages, --suite and --mirror are about Debian's userland: they do not go with --oci or --dir"))
	case c.OCI != "":
		return template.OCI{Path: c.OCI}, nil
	case c.Dir != "":
		return template.Dir{Path: c.Dir}, nil
	case c.Name != "base" && !asked:
		return nil, command.Usage(fmt.Errorf("template %s: name its source: --packages, --suite, --from, --oci or --dir (only base needs none)", c.Name))
	}
	if err := debian.Check(); err != nil {
		return nil, command.Usage(err)
	}
	return debian, nil
}

func (c templateBuildCmd) Run(a *app) error {
	if err := run.RequireHost(); err != nil {
		return err
	}
	h, err := a.home()
	if err != nil {
		return err
	}
	store, err := run.Templates(h, a.Writer())
	if err != nil {
		return err
	}
	src, err := c.source(store)
	if err != nil {
		return err
	}
	t, err := store.Build(a.ctx, c.Name, src)
	if err != nil {
		return err
	}
	return run.MakeSnapshot(a.ctx, h, t, a.Say)
}

type templateLsCmd struct{}

func (templateLsCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	all, err := template.Store{Dir: h.Templates()}.List()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSOURCE\tKERNEL\tCREATED\tDIGEST")
	for _, t := range all {
		if t.Root == "" {
			fmt.Fprintf(w, "%s\t(broken)\t\t\t\n", t.Name)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", t.Name, sourceOf(t), t.Release, t.Created.Format("2006-01-02 15:04Z"), t.Digest()[:19])
	}
	return w.Flush()
}

// sourceOf describes the source of a template.
func sourceOf(t template.Template) string {
	parts := append([]string{strings.TrimSpace(t.Source + " " + t.Suite)}, t.Packages...)
	if t.Added {
		parts = append(parts, "files")
	}
	return strings.Join(parts, " +")
}

type templateShowCmd struct {
	Name string `arg:"" predictor:"template" help:"Name of the template."`
	JSON bool   `name:"json" help:"One JSON object."`
}

func (c templateShowCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	t, err := template.Store{Dir: h.Templates()}.Find(c.Name)
	if err != nil {
		return err
	}
	snapshots, err := t.Snapshots()
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(a.stdout).Encode(struct {
			template.Template
			Digest    string              `json:"digest"`
			Snapshots []template.Snapshot `json:"snapshots"`
		}{t, t.Digest(), snapshots})
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, value)
		}
	}
	line("name", t.Name)
	line("digest", t.Digest())
	line("created", t.Created.Format("2006-01-02 15:04Z"))
	line("source", sourceOf(t))
	if t.From != nil {
		line("on top of", t.From.Name+", "+t.From.Digest)
	}
	line("architecture", t.Arch)
	line("kernel", t.Release)
	line("environment", strings.Join(t.Env, " "))
	line("userland", "sha256 "+t.Root)
	for _, s := range snapshots {
		line("snapshot", fmt.Sprintf("%s, %d CPU, %d MiB, disk %d MiB", s.Tier, s.CPUs, s.Memory>>20, s.Disk>>20))
	}
	return w.Flush()
}

type templateRmCmd struct {
	Name string `arg:"" predictor:"template"`
}

func (c templateRmCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	return template.Store{Dir: h.Templates(), Log: a.Writer()}.Remove(a.ctx, c.Name)
}
