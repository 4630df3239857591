package sensor

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// kernel is the part of the sensor in the kernel: programs attached
// to their functions, and the maps that they share with this process.
type kernel struct {
	coll  *ebpf.Collection
	links []link.Link
}

// loadKernel loads and attaches every program. Nothing is reported until a
// cgroup is tracked.
func loadKernel() (*kernel, error) {
	spec, err := loadPrograms()
	if err != nil {
		return nil, fmt.Errorf("read the sensor's programs: %w", err)
	}
	if err := adapt(spec); err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load the sensor's programs: %w", err)
	}
	k := &kernel{coll: coll}
	for _, name := range k.names() {
		l, err := link.AttachTracing(link.TracingOptions{Program: coll.Programs[name]})
		if err != nil {
			k.close()
			return nil, fmt.Errorf("attach the sensor's program %s: %w", name, err)
		}
		k.links = append(k.links, l)
	}
	return k, nil
}

// renamed are kernel functions that programs attach to, and their names since Linux 6.19.
var renamed = map[string]string{"cgroup_exit": "cgroup_task_exit"}

// adapt adapts the programs to the running kernel: to the names of the functions that they
// attach to, and to the order of those functions' arguments.
func adapt(spec *ebpf.CollectionSpec) error {
	types, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("read the kernel's BTF: %w", err)
	}
	var function *btf.Func
	for _, p := range spec.Programs {
		if since := renamed[p.AttachTo]; since != "" && types.TypeByName(since, &function) == nil {
			p.AttachTo = since
		}
	}
	for name, v := range spec.Variables {
		operation, ok := strings.CutPrefix(name, "position_")
		if !ok {
			continue
		}
		argument := "dentry"
		if operation == "file" {
			operation, argument = "do_truncate", "file"
		}
		if err := types.TypeByName(operation, &function); err != nil {
			return fmt.Errorf("find the kernel's function %s: %w", operation, err)
		}
		position := last(function, argument)
		if position < 0 {
			return fmt.Errorf("the kernel's function %s takes no %s", operation, argument)
		}
		if err := v.Set(uint32(position)); err != nil {
			return fmt.Errorf("set the sensor's %s: %w", name, err)
		}
	}
	return nil
}

// last is the position of a function's last argument that points to such a structure, -1 without
// one: vfs_link takes another dentry before the one that it works on.
func last(f *btf.Func, structure string) int {
	proto, ok := f.Type.(*btf.FuncProto)
	if !ok {
		return -1
	}
	for i, p := range slices.Backward(proto.Params) {
		if to, ok := p.Type.(*btf.Pointer); !ok {
			continue
		} else if s, ok := to.Target.(*btf.Struct); ok && s.Name == structure {
			return i
		}
	}
	return -1
}

func (k *kernel) names() []string {
	var names []string
	for name := range k.coll.Programs {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func (k *kernel) set(variable string, value any) error {
	if err := k.coll.Variables[variable].Set(value); err != nil {
		return fmt.Errorf("set the sensor's %s: %w", variable, err)
	}
	return nil
}

func (k *kernel) close() error {
	var errs []error
	for _, l := range k.links {
		errs = append(errs, l.Close())
	}
	k.coll.Close()
	return errors.Join(errs...)
}
