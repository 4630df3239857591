package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/custody-project/custody/audit"
)

// What the made-up run does: it compiles, fetches and prints. The shares of the
// kinds are those of a build in a sandbox, about 390 bytes a record.
//
//	of 16 events: 4 exec, 4 exit, 4 file, 1 dns, 2 flow, 1 output

// made is event n of a made-up run. The number stands in one of its fields, so that
// what was recorded can be compared with what should have been: see Number.
func made(n int, t time.Time) audit.Event {
	job := n / 16
	switch n % 16 {
	case 0, 4, 8, 12:
		return execOf(n, t)
	case 2, 6, 10, 14:
		return exitOf(n, t)
	case 1, 5, 9, 13:
		return fileOf(n, t)
	case 3:
		return dnsOf(n, job, t)
	case 7, 11:
		return flowOf(n, job, t)
	}
	return audit.Event{Time: t, Observer: audit.Host, Kind: audit.KindOutput, Step: "build", Output: &audit.Output{
		Stream: "stdout", Offset: int64(n), Text: audit.Text(fmt.Sprintf("[%d] cc -O2 -Wall -c src/module_%d.c\n", n, job)),
	}}
}

// procOf names the process of a group of four events: its exec, a file, its exit.
func procOf(n int) string { return fmt.Sprintf("7f3a1c9e5d2b-s01-%d-%d", n/4, n/4*1181) }

func execOf(n int, t time.Time) audit.Event {
	return audit.Event{Time: t, Observer: audit.Guest, Kind: audit.KindExec, Step: "build", Exec: &audit.Exec{
		Proc: procOf(n), Parent: "7f3a1c9e5d2b-s01-4200-118273000", PID: n, PPID: 4200, Exe: "/usr/bin/x86_64-linux-gnu-gcc-12",
		Argv: []audit.Text{"gcc", "-O2", "-Wall", "-c", audit.Text(fmt.Sprintf("src/module_%d.c", n)), "-o", audit.Text(fmt.Sprintf("build/module_%d.o", n))},
		Cwd:  "/workspace", UID: 1000,
	}}
}

func exitOf(n int, t time.Time) audit.Event {
	return audit.Event{Time: t, Observer: audit.Guest, Kind: audit.KindExit, Step: "build",
		Exit: &audit.Exit{Proc: procOf(n), PID: n, DurationNS: 41_000_000 + int64(n)%997*1000}}
}

func fileOf(n int, t time.Time) audit.Event {
	return audit.Event{Time: t, Observer: audit.Guest, Kind: audit.KindFile, Step: "build", File: &audit.File{
		Proc: procOf(n), PID: n, Op: audit.FileWrite, Path: audit.Text(fmt.Sprintf("/workspace/build/module_%d.o", n)),
		Size: 4096 + int64(n)%8192, SHA256: hashOf(n),
	}}
}

// hashOf is the made-up hash of a file's content.
func hashOf(n int) string {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(n)))
	return hex.EncodeToString(sum[:])
}

// hostOf is one of a thousand host names.
func hostOf(job int) string { return fmt.Sprintf("mirror-%d.packages.example", job%1000) }

func dnsOf(n, job int, t time.Time) audit.Event {
	return audit.Event{Time: t, Observer: audit.Host, Kind: audit.KindDNS, Step: "build", DNS: &audit.DNS{
		Name: audit.Text(hostOf(job)), Type: "A", Proto: "udp", RCode: "NOERROR", Answers: []string{"198.18.0.7"}, TTL: 60,
		Verdict: audit.Allow, Rule: "*.packages.example", Synthetic: true, LatencyNS: int64(n), Generation: 1,
	}}
}

func flowOf(n, job int, t time.Time) audit.Event {
	state := audit.FlowOpen
	if n%16 == 11 {
		state = audit.FlowClose
	}
	return audit.Event{Time: t, Observer: audit.Host, Kind: audit.KindFlow, Step: "build", Flow: &audit.Flow{
		ID: fmt.Sprintf("f-%d", job), Proc: procOf(n), PID: n, State: state, Proto: "tcp", SrcIP: "10.0.2.15", SrcPort: 40000 + job%20000,
		DstIP: "198.18.0.7", DstPort: 443, Name: audit.Text(hostOf(job)), Verdict: audit.Allow, Rule: "*.packages.example", DNSSeq: uint64(job),
		Generation: 1, Peer: "192.0.2.44:443", BytesOut: uint64(700 + n%100), BytesIn: uint64(18_000 + n%10_000),
	}}
}

// started and ended frame a made-up run.
func started(tenant string, t time.Time) audit.Event {
	return audit.Event{Time: t, Observer: audit.Host, Kind: audit.KindRun, Lifecycle: &audit.Lifecycle{
		Phase: audit.PhaseStart, Tenant: tenant, Project: "loadtest", Tier: "none", Mode: "strict", Steps: []string{"build"},
	}}
}

func ended(t time.Time, took time.Duration) audit.Event {
	code := 0
	return audit.Event{Time: t, Observer: audit.Host, Kind: audit.KindRun, Lifecycle: &audit.Lifecycle{
		Phase: audit.PhaseEnd, ExitCode: &code, Status: audit.StatusDone, DurationNS: took.Nanoseconds(),
	}}
}
