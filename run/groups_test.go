package run

import "testing"

func TestHierarchies(t *testing.T) {
	got := hierarchies("#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t0\t1\t1\ncpu\t3\t4\t1\ncpuacct\t3\t4\t1\nmemory\t5\t4\t1\n")
	if len(got) != 3 || got["cpu"] != "cpu,cpuacct" || got["cpuacct"] != "cpu,cpuacct" || got["memory"] != "memory" {
		t.Errorf("together: %v", got)
	}
}
