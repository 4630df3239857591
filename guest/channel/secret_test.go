package channel

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/custody-project/custody/guest/erase"
)

func TestCheckSecrets(t *testing.T) {
	many := func(n int) (all []Secret) {
		for i := range n {
			all = append(all, Secret{Env: fmt.Sprint("E", i), Value: []byte("v")})
		}
		return all
	}
	for name, tt := range map[string]struct {
		all []Secret
		ok  bool
	}{
		"none":              {nil, true},
		"env":               {[]Secret{{Env: "_A9", Value: []byte("v")}}, true},
		"file":              {[]Secret{{File: "a/b.c", Value: []byte("\x00")}}, true},
		"both, twice":       {[]Secret{{Env: "A", File: "a"}, {Env: "B", File: "a.b/c"}}, true},
		"most":              {many(MaxSecrets), true},
		"largest":           {[]Secret{{Env: "A", Value: make([]byte, 0)}, {File: "a", Value: make([]byte, MaxSecret)}}, true},
		"too many":          {many(MaxSecrets + 1), false},
		"too large":         {[]Secret{{File: "a", Value: make([]byte, MaxSecret+1)}}, false},
		"nowhere":           {[]Secret{{Value: []byte("v")}}, false},
		"NUL in a variable": {[]Secret{{Env: "A", Value: []byte("a\x00b")}}, false},
		"same variable":     {[]Secret{{Env: "A"}, {Env: "A"}}, false},
		"same file":         {[]Secret{{File: "a"}, {File: "a"}}, false},
		"file as directory": {[]Secret{{File: "a/b/c"}, {File: "a"}}, false},
		"digit first":       {[]Secret{{Env: "1A"}}, false},
		"equals sign":       {[]Secret{{Env: "A=B"}}, false},
		"our variable":      {[]Secret{{Env: SecretsEnv}}, false},
		"long variable":     {[]Secret{{Env: strings.Repeat("A", maxEnvName+1)}}, false},
		"our file":          {[]Secret{{File: "env"}}, false},
		"below our file":    {[]Secret{{File: "env/a"}}, false},
		"absolute":          {[]Secret{{File: "/a"}}, false},
		"up":                {[]Secret{{File: "../a"}}, false},
		"up inside":         {[]Secret{{File: "a/../../b"}}, false},
		"only up":           {[]Secret{{File: ".."}}, false},
		"dot":               {[]Secret{{File: "."}}, false},
		"not clean":         {[]Secret{{File: "a//b"}}, false},
		"directory":         {[]Secret{{File: "a/"}}, false},
		"NUL in a name":     {[]Secret{{File: "a\x00b"}}, false},
		"newline":           {[]Secret{{File: "a\nb"}}, false},
		"long":              {[]Secret{{File: strings.Repeat("a", maxFile+1)}}, false},
	} {
		if err := checkSecrets(tt.all); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSecretIsNotShown: no formatting of a command, and no error, contains a value.
func TestSecretIsNotShown(t *testing.T) {
	const value = "do-not-show-me"
	cmd := Command{Step: "s", Argv: []string{"x"}, Secrets: []Secret{{Env: "A", Value: []byte(value)}}}
	said := fmt.Sprintf("%v %+v %#v %s %v %d", cmd, cmd, cmd, cmd.Secrets, &cmd.Secrets[0], cmd.Secrets)
	for _, bad := range []Secret{{Env: "A", Value: []byte(value + "\x00")}, {Env: "1", Value: []byte(value)}, {File: "/", Value: []byte(value)}} {
		said += fmt.Sprint(checkSecrets([]Secret{bad}), checkSecrets([]Secret{cmd.Secrets[0], cmd.Secrets[0]}))
	}
	if strings.Contains(said, value) || strings.Contains(said, fmt.Sprint([]byte(value))) {
		t.Errorf("a value shows: %s", said)
	}
}

func TestBundle(t *testing.T) {
	b := &bundle{key: [stepKeySize]byte{1, 2, 3}, secrets: []Secret{
		{Env: "A", File: "a", Value: []byte("value\x01\xff")}, {File: "b/c", Value: bytes.Repeat([]byte{0}, MaxSecret)}, {Env: "C", Value: []byte{}},
	}}
	plain := b.encode()
	if cap(plain)-len(plain) < sealTag {
		t.Error("no room for the tag")
	}
	got, err := decodeBundle(plain)
	if err != nil || !reflect.DeepEqual(got, b) {
		t.Fatalf("%v, %v", got, err)
	}
	erase.Bytes(plain)
	if bytes.Contains(got.secrets[0].Value, []byte("value")) {
		t.Error("a value is not where the bundle was decoded from")
	}
	plain = b.encode()
	for n := range len(plain) {
		if _, err := decodeBundle(plain[:n]); err == nil {
			t.Fatalf("%d of %d bytes were taken", n, len(plain))
		}
	}
	if _, err := decodeBundle(append(plain, 0)); err == nil {
		t.Error("a byte too many was taken")
	}
}

func FuzzBundle(f *testing.F) {
	f.Add((&bundle{}).encode())
	f.Add((&bundle{secrets: []Secret{{Env: "A", File: "a/b", Value: []byte("v")}}}).encode())
	f.Add(append(make([]byte, stepKeySize), 0xff, 0xff, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, in []byte) {
		b, err := decodeBundle(in)
		if err != nil {
			return
		}
		if again := b.encode(); !bytes.Equal(again, in) {
			t.Fatalf("%x is also written %x", in, again)
		}
		if err := checkSecrets(b.secrets); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSeal(t *testing.T) {
	context := sealContext("r-1", "step")
	plain := func() []byte { return append(make([]byte, 0, 100), "some secrets"...) }
	r, err := newRecipient()
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := seal(r.point(), plain(), context)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.open(bytes.Clone(sealed), context); err != nil || string(got) != "some secrets" {
		t.Fatalf("%q, %v", got, err)
	}
	again, _ := seal(r.point(), plain(), context)
	if bytes.Equal(sealed[:pointSize], again[:pointSize]) || bytes.Equal(sealed[pointSize:], again[pointSize:]) {
		t.Error("a key was used twice")
	}
	for name, other := range map[string][]byte{"step": sealContext("r-1", "step2"), "run": sealContext("r-2", "step"), "edge": sealContext("r-1\x00step", "")} {
		if got, err := r.open(bytes.Clone(sealed), other); err == nil {
			t.Errorf("another %s's secrets were opened: %q", name, got)
		}
	}
	if other, _ := newRecipient(); true {
		if _, err := other.open(bytes.Clone(sealed), context); err == nil {
			t.Error("another key opens it")
		}
	}
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 0x80
		got, err := r.open(bad, context)
		// The top bit of a point's last byte does not count in X25519; the point is bound by the key.
		if err == nil {
			t.Fatalf("byte %d was changed, and %q opened", i, got)
		}
	}
	for n := range sealed {
		if _, err := r.open(bytes.Clone(sealed[:n]), context); err == nil {
			t.Fatalf("%d of %d bytes were opened", n, len(sealed))
		}
	}
	for _, point := range [][]byte{nil, make([]byte, 31), make([]byte, 32), append([]byte{1}, make([]byte, 31)...)} {
		if _, err := seal(point, plain(), context); err == nil {
			t.Errorf("sealed for the point %x", point)
		}
	}
}

// TestErase: the library's copies of keys are at the place that we zero.
func TestErase(t *testing.T) {
	scalar := make([]byte, 32)
	rand.Read(scalar)
	key, err := ecdh.X25519().NewPrivateKey(scalar)
	if err != nil {
		t.Fatal(err)
	}
	eraseKey(key)
	if !bytes.Equal(key.Bytes(), make([]byte, 32)) {
		t.Error("the scalar is still there")
	}
	aead, erase, err := newAEAD(make([]byte, 32), make([]byte, 32), make([]byte, 32), []byte("c"))
	if err != nil {
		t.Fatal(err)
	}
	whole := reflect.ValueOf(aead).Elem()
	if whole.IsZero() {
		t.Fatal("there is no key to begin with")
	}
	if erase(); !whole.IsZero() {
		t.Error("the cipher's key is still there")
	}
}

// tapped records the bytes of a connection.
type tapped struct {
	io.ReadWriteCloser
	mu    sync.Mutex // guards bytes
	bytes []byte
}

func (c *tapped) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.bytes = append(c.bytes, b...)
	c.mu.Unlock()
	return c.ReadWriteCloser.Write(b)
}

// TestSecretsDelivered: secrets of any bytes are delivered, and are never unencrypted on the channel.
func TestSecretsDelivered(t *testing.T) {
	var got []Secret
	g := newGuest(t, localRunner{started: func(c Command) {
		got = nil
		for _, s := range c.Secrets {
			got = append(got, Secret{Env: s.Env, File: s.File, Value: bytes.Clone(s.Value)})
		}
	}})
	conn := &tapped{ReadWriteCloser: g.host}
	c := g.connect(t, conn, nil)
	value := []byte("a value that is a canary \xff\x00'\"")
	large := make([]byte, MaxSecret)
	rand.Read(large)
	want := []Secret{{File: "a/b", Value: bytes.Clone(value)}, {Env: "L", Value: bytes.ReplaceAll(large, []byte{0}, []byte{1})}, {Env: "E", File: "e", Value: []byte{}}}
	for n := len(want); n < MaxSecrets; n++ {
		want = append(want, Secret{File: fmt.Sprint("f", n), Value: large})
	}
	cmd := shell("echo out; exit 3")
	cmd.Secrets = want
	out, _, exit := result(t, c, cmd, "")
	if out != "out\n" || exit.Code != 3 || !reflect.DeepEqual(got, want) {
		t.Fatalf("%q, %+v, %d secrets", out, exit, len(got))
	}
	conn.mu.Lock()
	defer conn.mu.Unlock()
	for _, form := range []string{string(value), hex.EncodeToString(value), base64.StdEncoding.EncodeToString(value), string(large[:16]), base64.StdEncoding.EncodeToString(large[:15])} {
		if bytes.Contains(conn.bytes, []byte(form)) {
			t.Errorf("%q passed through the channel", form)
		}
	}
	if len(conn.bytes) < len(large)*60 {
		t.Errorf("only %d bytes were seen to pass", len(conn.bytes))
	}
}

// TestSecretsOfAnotherRun: a guest with another run's ID cannot open the secrets and starts no command.
func TestSecretsOfAnotherRun(t *testing.T) {
	g := newGuest(t, localRunner{started: func(Command) { t.Error("a command was started without its secrets") }})
	g.Identify = func(context.Context, Identity) error { g.run = "r-2"; return nil }
	c := g.connect(t, g.host, nil) // r-1
	cmd := shell("echo out")
	cmd.Secrets = []Secret{{Env: "A", Value: []byte("value")}}
	out, _, exit := result(t, c, cmd, "")
	if out != "" || exit.Code != 125 || !strings.Contains(exit.Error, "sealed for another step") {
		t.Errorf("%q, %+v", out, exit)
	}
	cmd.Secrets[0].Env = "no name"
	if _, err := c.Start(timeout(t), cmd); err == nil || errors.Is(err, ErrHostile) {
		t.Errorf("a variable that is none: %v", err)
	}
}
