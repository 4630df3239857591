package fence

import (
	"os"
	"testing"

	"github.com/custody-project/custody/internal/kerneltest"
)

// onKernels are the tests that run on each kernel by default: the programs load, both directions are attached, frames
// pass and are dropped as the oracle decides, all are dropped after the owner is killed, and a process without privileges can use
// the programs' maps. CUSTODY_TEST_EVERYWHERE=1
// runs all tests except those that need a program of the distribution, or a kernel module that is not in
// hack/hostvm/kernels.
const onKernels = "-test.run=TestRejected|TestRefused|TestAttach|TestDrops|TestKilled|TestFirstFilter|TestSecondFilter|TestHostDoesNot|TestDirectReaches|TestDirectDoesNotReachTheHost$|TestUplinkComes|TestSweepRemoves|TestDirectDatagrams|TestHostileFragments|TestFragments|FuzzVerdicts|TestRemote"

// TestKernels runs this package's tests on the kernels of supported hosts.
func TestKernels(t *testing.T) {
	tests := onKernels
	if os.Getenv("CUSTODY_TEST_EVERYWHERE") != "" {
		tests = "-test.skip=TestKernels|TestMissingCapability|TestDirectDoesNotReachTheHostBehindOthers"
	}
	for _, k := range kerneltest.OfHosts(t) {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			kerneltest.Run(t, k, "-test.v", tests)
		})
	}
}
