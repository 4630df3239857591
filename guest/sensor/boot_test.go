package sensor

import (
	"os"
	"testing"

	"github.com/custody-project/custody/internal/kerneltest"
)

// TestMain runs the tests: the sensor's programs need a kernel that the test's host may
// not have, so they are tested in a VM.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "workload" {
		os.Exit(workload(os.Args[2:]))
	}
	kerneltest.Main(m)
}

// TestKernels loads and attaches every program on the kernels of hosts. A template's kernel
// need not be that of the distribution that it was made on.
func TestKernels(t *testing.T) {
	for _, k := range kerneltest.OfHosts(t) {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			kerneltest.Run(t, k, "-test.v", "-test.run=TestLoad$")
		})
	}
}

// TestLoad runs in a VM.
func TestLoad(t *testing.T) {
	if !kerneltest.InVM() {
		t.Skip("TestKernels runs it in VMs")
	}
	k, err := loadKernel()
	if err != nil {
		t.Fatalf("%+v", err)
	}
	must(t, k.close())
}
