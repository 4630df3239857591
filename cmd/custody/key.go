//go:build linux

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/custody-project/custody/audit/proof/agekey"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/state"
)

type keyCmd struct {
	Show     keyShowCmd     `cmd:"" help:"Print the public key that verifies this host's records."`
	Rotate   keyRotateCmd   `cmd:"" help:"Make a new key; the old one signs for it, and is removed."`
	Fleet    keyFleetCmd    `cmd:"" help:"A fleet's root key, which states the keys of its hosts."`
	Archive  keyArchiveCmd  `cmd:"" help:"Make the key of the archive of paused sandboxes that host.yaml names, unless there is one."`
	Identity keyIdentityCmd `cmd:"" help:"Make an age identity that can decrypt this host's signing key (key: age:FILE in host.yaml)."`
}

type keyShowCmd struct{}

func (keyShowCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	public, err := h.Keys().Public()
	if err != nil {
		return err
	}
	a.Say("the private key is kept " + h.Keys().Kept())
	older, err := h.Keys().Older()
	if err != nil {
		return err
	}
	for _, r := range older {
		a.Say("runs before " + r.Time.UTC().Format(time.RFC3339) + " are signed by an older key: " + r.Old)
	}
	_, err = fmt.Fprintln(a.stdout, public)
	return err
}

type keyRotateCmd struct {
	From string `placeholder:"KIND" help:"The key: setting of host.yaml under which the old key was stored, if host.yaml now has another one: file."`
}

func (c keyRotateCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	if c.From == "" {
		a.env().Tidy(a.ctx, h) // otherwise the key in host.yaml does not sign yet
	}
	key, err := h.Keys().Rotate(a.ctx, c.From)
	if err != nil {
		return err
	}
	fmt.Fprintln(a.stdout, strings.TrimSpace(key.Public))
	a.Say("the new private key is kept " + h.Keys().Kept())
	a.Say("give the new public key to auditors and witnesses, in addition to the old one: runs signed by the old key verify only with the old key; runs signed by the new key verify with either, through the statement in each bundle")
	a.Say("if the old key may be stolen, auditors must stop trusting it: with it a thief can sign such a statement, too")
	return nil
}

type keyArchiveCmd struct{}

func (keyArchiveCmd) Run(a *app) error {
	h, err := a.home()
	if err != nil {
		return err
	}
	if h.Config().Paused.Archive == nil {
		return host.ErrNoArchive
	}
	file := host.ArchiveKeyFile(h)
	if err := state.SharedKeyFile(file).Create(); err != nil {
		return err
	}
	fmt.Fprintln(a.stdout, file)
	a.Say("copy the file, mode 0600, to the other hosts of the group: without it they cannot fetch what this one archives")
	return nil
}

type keyIdentityCmd struct {
	File string `arg:"" type:"path" help:"The file to make, mode 0600; preferably on another medium than CUSTODY_HOME."`
}

func (c keyIdentityCmd) Run(a *app) error {
	recipient, err := agekey.NewIdentity(c.File)
	if err != nil {
		return err
	}
	fmt.Fprintln(a.stdout, recipient)
	a.Say("keep a copy of " + c.File + " in a safe place: without it the signing key cannot be decrypted")
	return nil
}
