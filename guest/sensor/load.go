package sensor

import (
	"errors"
	"fmt"
	"sort"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// kernel is the part of the sensor that lives in the kernel: programs attached
// to their functions, and the maps they share with us.
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
