// Package metrics exports Custody's own metrics to Prometheus.
//
// Of the other packages only metrics/hostmetrics and cmd import it: packages have callbacks and counters, which
// are connected with a Set. Counters are stored in the process; values that are collected
// on each scrape (queues, lag, spool) come from a function that the
// package's owner registers and unregisters. If several runs of a process register
// the same labels, the values are added, and of seconds of lag the greatest is used.
//
// Labels come from small closed sets, or are names of sinks or tenants in the host's
// configuration, at most 64. No run, step, path, host name, URL or secret is ever a label.
//
//	custody_build_info{version}                  gauge      1
//	custody_wal_commit_duration_seconds          histogram  one commit: write and fsync
//	custody_wal_records_total                    counter    records made durable
//	custody_wal_bytes_total                      counter    bytes made durable
//	custody_queue_depth{queue}                   gauge      items that wait in a queue of this process
//	custody_queue_capacity{queue}                gauge      depth at which it applies back pressure
//	custody_lag_seconds{stage,sink}              gauge      age of the oldest item that has not passed the stage
//	custody_lag_segments{stage,sink}             gauge      segments that have not
//	custody_lost_events_total{stage}             counter    events that gaps declare as lost
//	custody_freezes_total                        counter    times that VMs were frozen because the record could not be written
//	custody_frozen                               gauge      VMs that are frozen now
//	custody_frozen_seconds_total                 counter    time that VMs were frozen, including VMs that are frozen now
//	custody_ingested_records_total               counter    records that this process wrote to the store
//	custody_ingest_duration_seconds              histogram  one commit of the store
//	custody_refused_segments_total{reason}       counter    segments that no store can take
//	custody_exported_events_total{sink}          counter    events that a sink has confirmed
//	custody_export_retries_total{sink}           counter    batches that are delivered again
//	custody_dead_letters_total{sink}             counter    events that it can never accept
//	custody_redactions_total                     counter    values that were removed from events before they were recorded
//	custody_silent_workers_total                 counter    workers of sandboxes that were killed because they gave no sign of life
//	custody_spool_bytes                          gauge      bytes that the logs on this host use
//	custody_spool_limit_bytes                    gauge      size at which strict freezes VMs and degrade declares losses
//	custody_pool_hits_total                      counter    warm sandboxes that the pool leased
//	custody_pool_misses_total{reason}            counter    runs for which the pool had none
//	custody_pool_wait_duration_seconds           histogram  a run's wait for a warm sandbox
//	custody_pool_refill_duration_seconds         histogram  making one warm sandbox
//	custody_pool_failures_total                  counter    warm sandboxes that could not be made
//	custody_pool_destroyed_total{cause}          counter    sandboxes that the pool destroyed
//	custody_pool_sandboxes{state}                gauge      sandboxes of the pool: idle, leased, making, ending
//	custody_service_connections                  gauge      open connections of users of the service
//	custody_service_runs_total{result}           counter    runs that users asked for
//	custody_service_refused_total{reason}        counter    connections and requests of users that were refused
//	custody_sandboxes{tenant,state}              gauge      sandboxes of the API
//	custody_sandbox_starts_waiting{tenant}       gauge      starts that wait for their turn
//	custody_sandbox_wait_duration_seconds        histogram  a start's wait for its turn
//	custody_sandbox_refused_total{quota}         counter    starts that were refused, by the quota that was used up
//	custody_sandbox_lazy_saved_seconds_total     counter    time for which promised sandboxes had no VM
//	custody_quota_used{tenant,quota}             gauge      what tenants use of their quotas, in the units of host.yaml; memory in bytes
//	custody_quota_limit{tenant,quota}            gauge      the quotas of tenants that have a limit
//
// Those of a service, of sandboxes and of quotas are there only in custody serve. Those of a pool are there only in a process that has one, and in custody serve, which asks
// custody host for them.
// In addition there are the metrics of the Prometheus client for the process (process_*)
// and for Go (go_*).
package metrics
