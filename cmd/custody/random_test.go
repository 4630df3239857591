package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// draw prints random numbers of 8 bytes from every source that programs use: the first program of the step reads the
// first, and AT_RANDOM is what the kernel passes to a new program for its stack canaries.
const draw = `od -An -v -tx8 -w8 -N8 /dev/urandom
cat /proc/sys/kernel/random/uuid | tr -d - | cut -c 1-16
python3 -c '
import ctypes, os, uuid
libc = ctypes.CDLL(None)
libc.getauxval.restype = ctypes.c_ulong
print(ctypes.string_at(libc.getauxval(25), 8).hex())
for _ in range(2000):
    print(os.getrandom(8).hex())
    print(os.urandom(8).hex())
print(uuid.uuid4().hex[:12])
'`

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
			both.Go(func() { outputs[2*i+j] = d.script(0, draw).stdout })
		}
		both.Wait()
	}
	seen := map[string]string{}
	for i, out := range outputs {
		words := strings.Fields(out)
		if len(words) != 4004 {
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
