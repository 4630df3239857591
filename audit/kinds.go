package audit

import "slices"

// Kinds returns all kinds that this version writes.
func Kinds() []Kind {
	return []Kind{
		KindRun, KindStep, KindExec, KindExit, KindFile, KindFlow, KindDNS, KindHTTP, KindLLM,
		KindPolicy, KindProbe, KindOutput, KindVM, KindCopy, KindSecret, KindGap, KindFinding, KindAccess, KindNote,
	}
}

// Known says whether this version writes such records; a newer one may write others.
func (k Kind) Known() bool { return slices.Contains(Kinds(), k) }
