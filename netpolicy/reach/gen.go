package reach

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -target amd64,arm64 -type key -cflags "-O2 -Wall -Werror -mcpu=v3" programs reach.bpf.c
