package remote_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/custody-project/custody/privsep/privseptest"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/remote"
)

// TestStartErrors: that a machine died during its start can be distinguished from other reasons why it did not start.
func TestStartErrors(t *testing.T) {
	t.Parallel()
	for _, fails := range []error{fmt.Errorf("%w: by itself", vmm.ErrDied), errors.New("there is no memory")} {
		s := remote.NewServer(func(context.Context) (remote.Started[remote.Process], error) {
			return remote.Started[remote.Process]{}, fails
		})
		_, _, err := remote.Start(t.Context(), privseptest.Connect(t, s.Handlers()), nil, 0)
		if err == nil || err.Error() != fails.Error() {
			t.Errorf("error %v in place of %v", err, fails)
		}
		if died := errors.Is(fails, vmm.ErrDied); errors.Is(err, vmm.ErrDied) != died {
			t.Errorf("%v: died is not %v", err, died)
		}
	}
}
