//go:build linux

package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/replay/access"
)

type tokenCmd struct {
	New tokenNewCmd `cmd:"" help:"Make a token for the API and print it, once."`
	Ls  tokenLsCmd  `cmd:"" help:"List the tokens."`
	Rm  tokenRmCmd  `cmd:"" help:"Remove a token; it stops working within a second."`
}

type tokenNewCmd struct {
	Name    string        `arg:"" help:"Name of its user, as the access log shows it."`
	Role    string        `enum:"viewer,auditor,operator,admin" default:"viewer" help:"viewer, auditor, operator or admin."`
	Tenant  *string       `placeholder:"NAME" help:"Tenant whose runs it can read (default: host.yaml's)."`
	Expires time.Duration `placeholder:"TIME" help:"Its lifetime, such as 720h (default 2160h)."`
}

func (c tokenNewCmd) Run(a *app) error {
	tokens, tenant, err := a.tokens()
	if err != nil {
		return err
	}
	if c.Tenant != nil {
		tenant = *c.Tenant
	}
	token, err := tokens.New(a.ctx, c.Name, tenant, access.Role(c.Role), c.Expires)
	if err != nil {
		return err
	}
	a.Say("the token is shown this once; it goes into a header: Authorization: Bearer cst_...")
	_, err = fmt.Fprintln(a.stdout, token)
	return err
}

// tokens opens this host's tokens, and returns the tenant, which has a default.
func (a *app) tokens() (*access.Tokens, string, error) {
	h, err := a.home()
	if err != nil {
		return nil, "", err
	}
	tokens, err := access.OpenTokens(h.Serve())
	return tokens, h.Config().Tenant, err
}

type tokenLsCmd struct{}

func (tokenLsCmd) Run(a *app) error {
	tokens, _, err := a.tokens()
	if err != nil {
		return err
	}
	list, err := tokens.List()
	if err != nil {
		return err
	}
	if len(list) == 0 {
		a.Say("there are no tokens: custody token new NAME makes one")
		return nil
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tNAME\tTENANT\tROLE\tEXPIRES\tUSED")
	for _, t := range list {
		used := "never"
		if !t.Used.IsZero() {
			used = t.Used.UTC().Format("2006-01-02 15h")
		}
		expires := t.Expires.UTC().Format("2006-01-02 15:04")
		if t.Expires.Before(time.Now()) {
			expires += " (over)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, console.Clean(t.Name), console.OrDash(t.Tenant), t.Role, expires, used)
	}
	return w.Flush()
}

type tokenRmCmd struct {
	Token string `arg:"" name:"name|id" help:"Its name or id, as custody token ls prints it."`
}

func (c tokenRmCmd) Run(a *app) error {
	tokens, _, err := a.tokens()
	if err != nil {
		return err
	}
	t, err := tokens.Remove(a.ctx, c.Token)
	if err != nil {
		return err
	}
	a.Say(fmt.Sprintf("removed %s (%s)", t.ID, t.Name))
	return nil
}
