package fence

import (
	"os"
	"testing"

	"github.com/custody-project/custody/internal/kerneltest"
)

// onKernels are the tests that run on each kernel in every run of the tests: the programs
// load, both directions are attached, frames pass and are dropped as the oracle says, and
// all are dropped once the owner is killed. CUSTODY_TEST_EVERYWHERE=1 runs all but those that need a
// program of the distribution, or a module that is not among the kernels' in hack/hostvm/kernels.
const onKernels = "-test.run=TestRejected|TestRefused|TestAttach|TestDrops|TestKilled|TestFirstWall|TestSecondWall|TestSiteDoesNot|TestDirectReaches|TestDirectDoesNotReachTheSite$|TestUplinkComes|TestSweepRemoves|TestDirectDatagrams|TestHostileFragments|TestFragments|FuzzVerdicts"

// TestKernels runs this package's tests on the kernels of hosts.
func TestKernels(t *testing.T) {
	tests := onKernels
	if os.Getenv("CUSTODY_TEST_EVERYWHERE") != "" {
		tests = "-test.skip=TestKernels|TestMissingCapability|TestDirectDoesNotReachTheSiteBehindOthers"
	}
	for _, k := range kerneltest.OfHosts(t) {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			kerneltest.Run(t, k, "-test.v", tests)
		})
	}
}
