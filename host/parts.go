package host

// Layout names the files and directories below $CUSTODY_HOME.
type Layout struct {
	Dir string
	// Shared is the directory of host.yaml, the signing key and the public keys, the templates and the registered
	// projects; empty: Dir.
	Shared string
}

// Keys are the host's signing key, its retired keys, and the signed statements of the rotations.
type Keys struct{ host *Host }

// Keys returns the host's keys.
func (h *Host) Keys() Keys { return Keys{h} }

// Fleet has the fleet's root key and the enrolled hosts.
type Fleet struct{ host *Host }

// Fleet returns the host's fleet.
func (h *Host) Fleet() Fleet { return Fleet{h} }

// Retention removes old data according to host.yaml, except runs with a hold.
type Retention struct{ host *Host }

// Retention returns the host's retention.
func (h *Host) Retention() Retention { return Retention{h} }

// Deletions are the runs that retention deleted. A signed statement of each deletion remains.
type Deletions struct{ host *Host }

// Deletions returns the host's deletions.
func (h *Host) Deletions() Deletions { return Deletions{h} }

// Erasures remove the contents of single records.
type Erasures struct{ host *Host }

// Erasures returns the host's erasures.
func (h *Host) Erasures() Erasures { return Erasures{h} }

// Proofs collect the evidence that proves a run or a record to others.
type Proofs struct{ host *Host }

// Proofs returns the host's proofs.
func (h *Host) Proofs() Proofs { return Proofs{h} }

// ManifestLog is the host's log of all runs' manifests, with its checkpoints, witnesses and time stamps.
type ManifestLog struct{ host *Host }

// ManifestLog returns the host's log of manifests.
func (h *Host) ManifestLog() ManifestLog { return ManifestLog{h} }

// TrustStore has the project files that the user has accepted.
type TrustStore struct{ host *Host }

// TrustStore returns the host's trust store.
func (h *Host) TrustStore() TrustStore { return TrustStore{h} }

// Control controls the live runs of the host.
type Control struct {
	host *Host
	user *int // see For
}

// Control returns the control of live runs.
func (h *Host) Control() Control { return Control{host: h} }

// Shipping brings sealed segments from the runs' logs to the store.
type Shipping struct{ host *Host }

// Shipping returns the host's shipping.
func (h *Host) Shipping() Shipping { return Shipping{h} }

// RunLogs are the logs of the runs on this host.
type RunLogs struct{ host *Host }

// RunLogs returns the logs of the runs.
func (h *Host) RunLogs() RunLogs { return RunLogs{h} }

// Checks compare the store with the logs.
type Checks struct{ host *Host }

// Checks returns the host's checks.
func (h *Host) Checks() Checks { return Checks{h} }

// Exporters export the store's records to sinks.
type Exporters struct{ host *Host }

// Exporters returns the host's exporters.
func (h *Host) Exporters() Exporters { return Exporters{h} }

// recovery closes the logs of runs whose process died.
type recovery struct{ host *Host }
