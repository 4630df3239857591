//go:build linux

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/command"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/service/remote"
)

type projectCmd struct {
	Apply   projectApplyCmd   `cmd:"" help:"Register a project's file under the name in it, as the next version."`
	Ls      projectLsCmd      `cmd:"" help:"List the registered projects."`
	Show    projectShowCmd    `cmd:"" help:"Print the file of a registered project as it was registered."`
	History projectHistoryCmd `cmd:"" help:"List the versions of a project."`
	Rm      projectRmCmd      `cmd:"" help:"Withdraw a project: no new run can be of it. Its versions stay."`
}

func (a *app) projects(do func(run.Projects) error) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	return do(run.Projects{Home: h, Version: version(), Service: func(ctx context.Context, x audit.Access) error {
		return command.Client{Socket: remote.ServiceSocket(os.Getenv), Env: a.env()}.Record(ctx, h, x)
	}})
}

type projectApplyCmd struct {
	File string `arg:"" type:"path" help:"The project's file."`
}

func (c projectApplyCmd) Run(a *app) error {
	return a.projects(func(p run.Projects) error {
		v, changed, err := p.Apply(a.ctx, c.File)
		if err != nil {
			return err
		}
		what := "is registered"
		if !changed {
			what = "is registered already, with the same bytes: nothing was changed"
		}
		_, err = fmt.Fprintf(a.stdout, "%s version %d (%s) %s\n", v.Project, v.Number, v.Digest, what)
		return err
	})
}

type projectLsCmd struct{}

func (projectLsCmd) Run(a *app) error {
	return a.projects(func(p run.Projects) error { return p.List(a.stdout, a.Say) })
}

type projectShowCmd struct {
	Name    string `arg:"" predictor:"project" help:"The project."`
	Version uint64 `arg:"" optional:"" help:"Its version (default: the one in force)."`
}

func (c projectShowCmd) Run(a *app) error {
	return a.projects(func(p run.Projects) error { return p.Show(a.stdout, c.Name, c.Version) })
}

type projectHistoryCmd struct {
	Name string `arg:"" predictor:"project" help:"The project."`
}

func (c projectHistoryCmd) Run(a *app) error {
	return a.projects(func(p run.Projects) error { return p.History(a.stdout, c.Name) })
}

type projectRmCmd struct {
	Name string `arg:"" predictor:"project" help:"The project."`
}

func (c projectRmCmd) Run(a *app) error {
	return a.projects(func(p run.Projects) error {
		v, err := p.Withdraw(a.ctx, c.Name)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.stdout, "%s version %d is withdrawn\n", v.Project, v.Number)
		return err
	})
}
