package project

import (
	"slices"
	"testing"
)

func TestReach(t *testing.T) {
	for yaml, want := range map[string][]string{
		"version: 1\n": nil,
		"version: 1\nlimits: {memory: 1GiB}\nsteps: [{name: a, run: 'true'}]\nanomaly: end\n": nil,
		"version: 1\nsecrets:\n  b: {from: 'cmd:./key.sh \"x y\"'}\n  a: {from: 'env:HOME'}\n  c: {from: 'file:token'}\n  d: {from: 'vault:kv/a#b'}\n": {
			"secret a: reads the environment variable HOME", `secret b: runs "./key.sh \"x y\"" on this host`, "secret c: reads the file token", "secret d: takes kv/a#b from Vault",
		},
		"version: 1\negress: [{allow: a.example}, {allow: b.example, ports: [tcp/22], addresses: [10.0.0.0/8]}]\nresolvers: ['udp://10.0.0.53']\n": {
			"egress: a.example tcp/443", "egress: b.example tcp/22 addresses=[\"10.0.0.0/8\"]", "resolvers: asks udp://10.0.0.53",
		},
		"version: 1\nisolation: qemu-tcg\nrecord: {mode: degrade, output: 1MiB, files: {hash_over: 1KiB, read_over: -1}}\n": {
			"record.mode: degrade: continues when the record cannot be written", "record.files: does not hash files of up to 1024 bytes that are written",
			"record.files: reports fewer reads than by default", "record.output: records 1048576 bytes of output", "isolation: qemu-tcg",
		},
	} {
		f, err := Parse("custody.yaml", []byte(yaml))
		if err != nil {
			t.Errorf("%s: %v", yaml, err)
			continue
		}
		if got := f.Reach(); !slices.Equal(got, want) {
			t.Errorf("%s asks for %q, want %q", yaml, got, want)
		}
	}
}

func TestHostFiles(t *testing.T) {
	f := File{Secrets: map[string]Secret{"a": {From: `cmd:sh ./get.sh "$X" </etc/passwd`}, "b": {From: "file:token"}, "c": {From: "env:E"}}}
	got := f.HostFiles("deploy/custody.yaml", "deploy")
	for _, want := range []string{"deploy/custody.yaml", "deploy/get.sh", "/etc/passwd", "deploy/token"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q lacks %s", got, want)
		}
	}
}
