package sensor

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -target amd64,arm64 -cflags "-O2 -Wall -Werror -mcpu=v3" programs sensor.bpf.c
