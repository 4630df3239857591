package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/internal/regular"
)

// Hold prevents retention from deleting a run until the hold is released, for example during a dispute or an inquiry.
type Hold struct {
	Run    string    `json:"run"`
	Reason string    `json:"reason"`
	By     string    `json:"by"`
	Time   time.Time `json:"time"`
}

func (r Retention) holdFile(run string) string {
	return r.host.path("holds", filepath.Base(r.host.RunDir(run)))
}

// IsHeld reports whether a run is on hold. A hold that cannot be read counts.
func (r Retention) IsHeld(run string) bool {
	_, err := os.Lstat(r.holdFile(run))
	return !errors.Is(err, fs.ErrNotExist)
}

// Hold puts a hold on a run that has a log here. It replaces an earlier hold.
func (r Retention) Hold(hold Hold) error {
	if !r.host.RunLogs().Has(hold.Run) {
		return fmt.Errorf("run %s has no log on this host, so a hold has no effect", hold.Run)
	}
	hold.Time = time.Now().UTC()
	text, err := json.Marshal(hold)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.host.path("holds"), 0o700); err != nil {
		return err
	}
	return durable.Replace(r.holdFile(hold.Run), append(text, '\n'), 0o600)
}

// Release removes the hold of a run.
func (r Retention) Release(run string) error {
	err := os.Remove(r.holdFile(run))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("run %s is not on hold", run)
	}
	return err
}

// Holds lists the holds, oldest run first.
func (r Retention) Holds() ([]Hold, error) {
	entries, err := os.ReadDir(r.host.path("holds"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []Hold
	for _, e := range entries {
		if err != nil || !isRun(e.Name()) {
			continue
		}
		var hold Hold
		var text []byte
		if text, err = regular.ReadFile(r.host.path("holds", e.Name())); err == nil {
			err = json.Unmarshal(text, &hold)
		}
		all = append(all, hold)
	}
	return all, err
}
