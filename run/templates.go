package run

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/vmm/template"
)

// Templates opens the templates of h. custody-guest must be in the directory of this program. Messages of builds go to log.
func Templates(h *host.Host, log io.Writer) (template.Store, error) {
	self, err := os.Executable()
	if err != nil {
		return template.Store{}, err
	}
	return template.Store{Dir: h.Templates(), Guest: filepath.Join(filepath.Dir(self), "custody-guest"), Log: log}, nil
}

// MakeSnapshot makes the snapshot for runs with default limits, unless the template has it.
func MakeSnapshot(ctx context.Context, h *host.Host, t template.Template, notice func(string)) error {
	required, err := RequiredTier("", project.Default(), h)
	if err != nil {
		return err
	}
	choice, err := hostd.TierPicker(h, t, notice).Pick(ctx, required)
	if err != nil {
		return err
	}
	if !choice.Driver.Snapshots() {
		return nil
	}
	img, err := t.Image(ctx, choice.Driver, Shape(project.Default()))
	if err != nil {
		return err
	}
	return img.Close()
}
