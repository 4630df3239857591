package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"

	"github.com/custody-project/custody/internal/console"
)

const noiseEnv = "CUSTODY_TEST_NOISE"

const hushed = "a value that a library tells"

// TestLibraries has libraries say a value in every way that they have. Only what goes through the mask
// is on standard error, and all that the app itself says.
func TestLibraries(t *testing.T) {
	said, err := noise(t, "libraries")
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if strings.Contains(said, hushed) {
		t.Errorf("standard error has the value:\n%s", said)
	}
	for _, want := range []string{"custody: own words [MASKED]\n", `custody: level=WARN msg="a warning" of="[MASKED]"`} {
		if !strings.Contains(said, want) {
			t.Errorf("standard error has no %q:\n%s", want, said)
		}
	}
	if n := strings.Count(said, "\n"); n != 2 {
		t.Errorf("%d lines:\n%s", n, said)
	}
}

// TestService does the same where words are lines of JSON.
func TestServiceLibraries(t *testing.T) {
	said, err := noise(t, "service")
	if err != nil || strings.Contains(said, hushed) || strings.Count(said, "\n") != 2 || !strings.Contains(said, `"msg":"a warning","of":"[MASKED]"`) {
		t.Errorf("%v\n%s", err, said)
	}
}

// TestCrash has a goroutine crash: standard error has its stack.
func TestCrash(t *testing.T) {
	said, err := noise(t, "crash")
	exit := new(exec.ExitError)
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(said, "panic: a mistake") || !strings.Contains(said, "stderr_test.go") {
		t.Errorf("%v\n%s", err, said)
	}
}

// TestWordless has no standard error at all.
func TestWordless(t *testing.T) {
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", `exec "$0" version 2>&-`, bin+"/custody")
	if out, err := cmd.Output(); err != nil || !strings.HasPrefix(string(out), "custody ") {
		t.Errorf("%v %s", err, out)
	}
}

// noise runs TestNoise in a separate process and returns its standard error.
func noise(t *testing.T, how string) (string, error) {
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestNoise$", "-test.count=1")
	cmd.Env = append(os.Environ(), noiseEnv+"="+how, programsEnv+"=unused")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said strings.Builder
	cmd.Stderr = &said
	err := cmd.Run()
	return said.String(), err
}

// TestNoise does nothing except in a process that noise has started.
func TestNoise(t *testing.T) {
	how := os.Getenv(noiseEnv)
	if how == "" {
		return
	}
	stderr, err := console.OwnStderr()
	if err != nil {
		t.Fatal(err)
	}
	mask := func(s string) string { return strings.ReplaceAll(s, hushed, "[MASKED]") }
	a := newApp(context.Background(), nil, nil, stderr)
	a.Mask = mask
	if how == "service" {
		a.Log = slog.New(slog.NewJSONHandler(maskedBy{stderr, mask}, nil))
	}
	a.Adopt()
	if how == "crash" {
		done := make(chan struct{})
		go func() { defer close(done); panic("a mistake") }()
		<-done
	}
	log.Print(hushed)
	log.New(log.Writer(), "", 0).Print(hushed)
	fmt.Fprintln(os.Stderr, hushed)
	println(hushed)
	grpclog.Error(hushed)
	klog.Error(hushed)
	klog.Flush()
	slog.Debug(hushed)
	slog.Warn("a warning", "of", hushed)
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(hushed) }))
	if resp, err := http.Get(s.URL); err == nil {
		resp.Body.Close()
	}
	s.Close()
	a.Say("own words " + hushed)
}

// maskedBy is masked with the test's mask.
type maskedBy struct {
	out  io.Writer
	mask func(string) string
}

func (m maskedBy) Write(line []byte) (int, error) {
	_, err := io.WriteString(m.out, m.mask(string(line)))
	return len(line), err
}
