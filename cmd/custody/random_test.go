package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// draw is the first program of a step. It prints random numbers of 8 bytes from every source that programs use.
// AT_RANDOM is what the kernel has passed to it for its stack canaries before it ran.
const draw = `import ctypes, os, uuid
libc = ctypes.CDLL(None)
libc.getauxval.restype = ctypes.c_ulong
print(ctypes.string_at(libc.getauxval(25), 8).hex())
print(os.getrandom(8).hex())
print(open("/dev/urandom", "rb", 0).read(8).hex())
print(open("/proc/sys/kernel/random/uuid").read().replace("-", "")[:16])
for _ in range(2000):
    print(os.getrandom(8).hex())
    print(os.urandom(8).hex())
print(uuid.uuid4().hex[:12])
`

// Sandboxes that were restored from one snapshot, at the same time and one after the other, never
// share a random number.
func TestRestoresShareNoRandomNumber(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.script(0, "true") // there is a snapshot
	outputs := make([]string, 4)
	for i := range len(outputs) / 2 {
		var both sync.WaitGroup
		for j := range 2 {
			both.Go(func() { outputs[2*i+j] = d.must(0, "run", "--", "python3", "-c", draw).stdout })
		}
		both.Wait()
	}
	seen := map[string]string{}
	for i, out := range outputs {
		words := strings.Fields(out)
		if len(words) != 4005 {
			t.Fatalf("sandbox %d drew %d numbers: %.300s", i, len(words), out)
		}
		for n, w := range words {
			at := fmt.Sprintf("sandbox %d, number %d", i, n)
			if other := seen[w]; other != "" {
				t.Errorf("%s and %s: %s", other, at, w)
			}
			seen[w] = at
		}
	}
}
