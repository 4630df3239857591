// Package remote signs with the host's key for a process that does not have it.
//
//	custody serve: host.Host, hostlog.Log --> Client --privsep--> Server: the key, what it has signed
//
// The Server assumes that its caller is compromised. It parses each statement and decides by its kind:
//
//	checkpoint            if it is of this host's log and extends the one that was signed last
//	deletion              if delete_after has passed since the run's closing manifest, which the caller shows, was signed
//	attachments (reports),
//	selection             if they are dated with the current time
//	trailer (bundles)     always
//	manifest              only by Seal: of runs that the caller itself writes, which are access logs; each segment once, in order. The
//	                      manifests of sandboxes' runs are those of package sealer, which signs for one worker
//	erasure, rotation     never, and neither a statement of a kind that it does not know: an administrator makes them as root
//
// An attacker who has taken over the caller can therefore get signed, as long as the Server runs:
//
//   - checkpoints over any entries that follow those already signed: also over false ones, without those that are missing, or over entries that
//     do not exist, so that the log cannot be continued. It gets no second version of an entry that was covered, and no smaller log;
//   - the deletion of each run that is older than delete_after, also of one on hold, with false times of its begin and numbers of records;
//   - reports, selections and bundles with any contents, in the name of any user;
//   - access logs with any contents from then on.
//
// It gets no record of a sandbox's run, no other version of a signed segment, no erasure, and no date in the past.
//
// # State
//
//	DIR/lock                  flock: held by the Server
//	DIR/checkpoint            the text of the checkpoint that was signed last
//	DIR/runs/RUN.manifest     the manifest that was signed last, of each run that the caller writes
//
// The state is durable before a signature leaves the process. Without the directory the Server signs one checkpoint of any log, so
// its owner must be the owner of the key.
package remote
