package fence

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -target amd64,arm64 -type flow_key -type flow -type target -type range_key -type permit -type event -type datagram_key -type datagram -cflags "-O2 -Wall -Werror -mcpu=v3" programs fence.bpf.c
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -target amd64,arm64 -cflags "-O2 -Wall -Werror -mcpu=v3" gates gate.bpf.c
