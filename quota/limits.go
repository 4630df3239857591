// Package quota decides which sandboxes of a host may start, and when.
//
// Each tenant, and each of its projects, has Limits. A start that is within them and for which the host has room gets a Lease
// immediately. Others wait in the Queue, which is bounded. Tenants take turns by deficit round robin, in which a start costs
// its share of the host, and so do the projects of a tenant. Starts of a project are in order of arrival.
//
// A start that waits for a limit of its project does not delay other projects. One that waits for a limit of its tenant delays
// the later starts of that tenant, and one that waits for room on the host, when it is its turn, delays all others: so starts
// that need much are not overtaken for ever by those that need little.
//
// The package keeps counts. It does not make sandboxes, and does not enforce the rates of disks and networks, which it only
// carries.
package quota

// Quota is the name of a limit, as in host.yaml.
type Quota string

// The quotas.
const (
	Sandboxes   Quota = "sandboxes"
	CPUs        Quota = "cpus"
	Memory      Quota = "memory"
	Starts      Quota = "starts_per_minute"
	Tokens      Quota = "llm_tokens_per_day"
	DiskRate    Quota = "disk_rate"
	NetworkRate Quota = "network_rate"
	// Waiting is the number of starts that wait.
	Waiting Quota = "queue"
)

// Quotas are all quotas of a tenant, in the order of host.yaml, and Waiting.
func Quotas() []Quota {
	var all []Quota
	for _, s := range settings() {
		all = append(all, s.name)
	}
	return append(all, Waiting)
}

// Used returns what is in use of the quotas that count something.
func (u Use) Used() map[Quota]int64 {
	return map[Quota]int64{Sandboxes: u.Sandboxes, CPUs: u.CPUs, Memory: u.Memory, Starts: u.Starts, Tokens: u.Tokens}
}

// Set returns the limits that are set.
func (l Limits) Set() map[Quota]int64 {
	all := map[Quota]int64{}
	for _, s := range settings() {
		if v := *s.field(&l); v > 0 {
			all[s.name] = v
		}
	}
	return all
}

// Limits are the limits of a tenant or a project. Zero is no limit.
type Limits struct {
	Sandboxes int64 // that exist concurrently
	CPUs      int64 // of them together
	Memory    int64 // of them together, in bytes
	// StartsPerMinute is the size of a token bucket that fills evenly in a minute.
	StartsPerMinute int64
	TokensPerDay    int64 // of LLM APIs, in a day of UTC
	// DiskRate and NetworkRate are in bytes per second. They are enforced elsewhere.
	DiskRate, NetworkRate int64
}

// Host is the size of a host: what all sandboxes together may have.
type Host struct {
	CPUs      int64
	Memory    int64 // in bytes
	Sandboxes int64 // 0: no limit
}

func (h Host) limits() Limits { return Limits{Sandboxes: h.Sandboxes, CPUs: h.CPUs, Memory: h.Memory} }

// Config is the section quotas of host.yaml:
//
//	quotas:
//	  host: {cpus: 64, memory: 256GiB, sandboxes: 200}
//	  queue: {size: 4096, per_tenant: 1024, wait: 2m}
//	  tenant: {sandboxes: 50, cpus: 32, memory: 64GiB, starts_per_minute: 600, llm_tokens_per_day: 50000000}
//	  project: {sandboxes: 20, disk_rate: 100MiB, network_rate: 50MiB}
//	  tenants:
//	    acme: {sandboxes: 200, cpus: none, projects: {web: {sandboxes: 100}}}
type Config struct {
	Host  Host
	Queue Bounds
	// Tenant and Project are the limits of each tenant and each project that have no entry in Tenants.
	Tenant, Project Limits
	// Tenants has entries with all limits of a tenant: UnmarshalYAML adds the defaults to them. The key of those without a
	// tenant is "".
	Tenants map[string]Entry
}

// Entry is the limits of one tenant, and of its projects.
type Entry struct {
	Limits
	Projects map[string]Limits
}

// Of returns the limits of a tenant, and of one of its projects.
func (c *Config) Of(tenant, project string) (ofTenant, ofProject Limits) {
	e, ok := c.Tenants[tenant]
	if !ok {
		return c.Tenant, c.Project
	}
	if p, ok := e.Projects[project]; ok {
		return e.Limits, p
	}
	return e.Limits, c.Project
}
