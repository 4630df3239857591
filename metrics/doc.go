// Package metrics is what Custody tells Prometheus about itself.
//
// No other room imports it: they have callbacks and counters of their own, and
// cmd connects those with a Set. What is counted lies in the process; what is
// asked for when Prometheus comes (queues, lag, spool) is a function that the
// room's owner registers and takes back. Where several runs of a process register
// the same, sums are given, and of seconds of lag the greatest.
//
// Labels come from small closed sets, or are names of sinks in the host's
// configuration, at most 64. No run, step, path, host name, URL or secret is ever a label.
//
//	custody_build_info{version}                  gauge      1
//	custody_wal_commit_duration_seconds          histogram  one commit: write and fsync
//	custody_wal_records_total                    counter    records made durable
//	custody_wal_bytes_total                      counter    bytes made durable
//	custody_queue_depth{queue}                   gauge      what waits in a queue of this process
//	custody_queue_capacity{queue}                gauge      at which it pushes back
//	custody_lag_seconds{stage,sink}              gauge      age of the oldest that has not passed the stage
//	custody_lag_segments{stage,sink}             gauge      segments that have not
//	custody_lost_events_total{stage}             counter    events that gaps declare as lost
//	custody_freezes_total                        counter    times that VMs were frozen for the record's sake
//	custody_frozen                               gauge      VMs that are frozen now
//	custody_frozen_seconds_total                 counter    time they were, that of the ones now included
//	custody_ingested_records_total               counter    records that this process wrote to the store
//	custody_ingest_duration_seconds              histogram  one commit of the store
//	custody_refused_segments_total{reason}       counter    segments that no store can take
//	custody_exported_events_total{sink}          counter    events that a sink has confirmed
//	custody_export_retries_total{sink}           counter    batches that it has to be given again
//	custody_dead_letters_total{sink}             counter    events that it can never take
//	custody_redactions_total                     counter    values that were taken out of the record
//	custody_spool_bytes                          gauge      what the logs on this host take
//	custody_spool_limit_bytes                    gauge      at which strict freezes and degrade declares
//
// Beside these there are those of Prometheus' client for the process (process_*)
// and for Go (go_*).
package metrics
