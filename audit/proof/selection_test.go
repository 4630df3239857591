package proof_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

// seqs selects a range.
func seqs(first, last uint64) *proof.Selection {
	return &proof.Selection{Shows: func(seq uint64) bool { return first <= seq && seq <= last }, What: "some"}
}

func (w *world) selection(t testing.TB, dir string, s *proof.Selection) files {
	t.Helper()
	o := w.options()
	o.Select, o.Signer, o.By, o.Time = s, w.signer, "ann", at
	var b bytes.Buffer
	check(t, proof.WriteBundle(t.Context(), &b, dir, o))
	return unpack(t, b.Bytes())
}

// spans returns the offsets at which the frames of a segment begin and end, by the documented format.
func spans(data []byte) (all [][2]int) {
	for i := 0; i < len(data); {
		end := i + 29 + int(binary.LittleEndian.Uint32(data[i+4:]))
		all = append(all, [2]int{i, end})
		i = end
	}
	return all
}

const segmentTwo = "00000000000000000006.seg"

// TestSelection shows four of fifteen records, across segments.
func TestSelection(t *testing.T) {
	w := newWorld(t)
	eraseRecord(t, w, 9)
	all := w.selection(t, w.one, seqs(4, 9))
	again := w.selection(t, w.one, seqs(4, 9))
	if !maps.EqualFunc(all, again, bytes.Equal) {
		t.Error("the same selection gives different bundles")
	}
	r, err := all.verify(t, w.trust())
	check(t, err)
	if r.Records != 15 || r.Withheld != 9 || r.Shown() != 5 || len(r.Erasures) != 1 || r.Selected.What != "some" || r.Selected.By != "ann" {
		t.Errorf("%d of %d records, %d withheld: %+v", r.Shown(), r.Records, r.Withheld, r.Selected)
	}
	full, err := w.bundle(t, w.one).verify(t, w.trust())
	check(t, err)
	if r.Head != full.Head || full.Selected != nil || full.Withheld != 0 || full.Shown() != 14 {
		t.Errorf("%+v", full)
	}
	text := slices.Concat(slices.Collect(maps.Values(all))...)
	for seq, shown := range map[string]bool{"line 3\\n": false, "line 4\\n": true, "line 8\\n": true, "line 10\\n": false, "line 15\\n": false} {
		if bytes.Contains(text, []byte(seq)) != shown {
			t.Errorf("%s: shown %v", seq, !shown)
		}
	}
	packed, err := openBytes(t, all.pack(t))
	check(t, err)
	defer packed.Close()
	if _, err := proofOf(t, packed, 8).Verify(w.recordTrust()); err != nil {
		t.Error(err)
	}
	_, err = proof.ProofOf(t.Context(), packed, 10)
	wants(t, err, verdict.ErrCannotBeJudged, verdict.ErrNoEvidence, 0)
}

// TestSelectionContext: records that verification needs are always shown, explanatory ones on request.
func TestSelectionContext(t *testing.T) {
	k := newKey(t)
	w := &world{key: k, log: &treeLog{signer: k.signer}}
	dir := t.TempDir() + "/r-kinds"
	l, err := wal.Create(dir, wal.Options{Run: "r-kinds", Sealer: statement.NewSealer(k.signer, facts)})
	check(t, err)
	kinds := []audit.Event{
		{Kind: audit.KindRun, Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart}},
		{Kind: audit.KindStep, Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart}},
		{Kind: audit.KindExec, Exec: &audit.Exec{Proc: "p"}},
		{Kind: audit.KindFinding, Finding: &audit.Finding{Rule: "x"}},
		{Kind: audit.KindGap, Gap: &audit.Gap{Stage: "output", Bytes: 7, Cause: "full"}},
		{Kind: audit.KindRun, Lifecycle: &audit.Lifecycle{Phase: audit.PhaseEnd}},
	}
	for _, e := range kinds {
		e.Time, e.Observer = at, audit.Host
		s, err := red.Seal(&e)
		check(t, err)
		_, err = l.Append(t.Context(), s)
		check(t, err)
	}
	check(t, l.Close(t.Context(), wal.Sealed))
	w.log.log(t, dir)
	w.before = w.log.publish(t)
	for context, want := range map[bool]uint64{false: 3, true: 5} {
		s := seqs(100, 200)
		s.Context = context
		r, err := w.selection(t, dir, s).verify(t, proof.Trust{Keys: k.trusted})
		check(t, err)
		if r.Shown() != want || len(r.Gaps) != 1 {
			t.Errorf("context %v: %d shown", context, r.Shown())
		}
	}
}

// TestSelectionRefused: records that cannot be distinguished or signed are not withheld.
func TestSelectionRefused(t *testing.T) {
	w, stranger := newWorld(t), newKey(t)
	try := func(s *proof.Selection, signer note.Signer) error {
		o := w.options()
		o.Select, o.Signer = s, signer
		return proof.WriteBundle(t.Context(), &bytes.Buffer{}, w.one, o)
	}
	for name, err := range map[string]error{
		"no signer":      try(seqs(1, 2), nil),
		"another signer": try(seqs(1, 2), stranger.signer),
		"no name":        try(&proof.Selection{Shows: seqs(1, 2).Shows}, w.signer),
		"nothing said":   try(&proof.Selection{What: "x"}, w.signer),
	} {
		if err == nil {
			t.Error(name)
		}
	}
	edit(t, segPath(w.one, 6), func(b []byte) []byte { b[100]++; return b })
	if err := try(seqs(1, 2), w.signer); !errors.Is(err, verdict.ErrAltered) {
		t.Errorf("an altered segment: %v", err)
	}
}

// TestSelectionTampered changes bundles that withhold records.
func TestSelectionTampered(t *testing.T) {
	w, stranger := newWorld(t), newKey(t)
	eraseRecord(t, w, 9)
	truth, full := w.selection(t, w.one, seqs(4, 9)), w.bundle(t, w.one)
	other, second := w.selection(t, w.one, seqs(4, 7)), w.selection(t, w.two, seqs(4, 9))
	swap := func(f files, name string, i, j int) {
		b, s := f[name], spans(f[name])
		f[name] = slices.Concat(b[:s[i][0]], b[s[j][0]:s[j][1]], b[s[i][1]:s[j][0]], b[s[i][0]:s[i][1]], b[s[j][1]:])
	}
	body := func(f files, name string, i int, change func(frame []byte)) {
		b := bytes.Clone(f[name])
		s := spans(b)[i]
		fr := b[s[0]:s[1]]
		change(fr)
		copy(fr[8:], sumOf(fr))
		f[name] = b
	}
	put := func(f files, name string, i int, from files) { // one frame of another bundle of the run
		s := spans(f[name])[i]
		f[name] = slices.Concat(f[name][:s[0]], from[name][s[0]:s[1]], f[name][s[1]:])
	}
	resigned := func(k key, change func(string) string) []byte {
		signed, err := note.Sign(&note.Note{Text: change(textOf(truth["selection"]))}, k.signer)
		check(t, err)
		return signed
	}
	const one, three = "00000000000000000001.seg", "00000000000000000011.seg"
	for name, c := range map[string]struct {
		change  func(files)
		finding error
		seq     uint64
	}{
		"statement removed":       {func(f files) { delete(f, "selection") }, verdict.ErrWithheldUndeclared, 1},
		"statement changed":       {func(f files) { f["selection"] = bytes.Replace(f["selection"], []byte("some"), []byte("none"), 1) }, verdict.ErrSelectionForged, 0},
		"statement by a stranger": {func(f files) { f["selection"] = resigned(stranger, func(s string) string { return s }) }, verdict.ErrSelectionForged, 0},
		"statement cosigned": {func(f files) {
			f["selection"] = append(f["selection"], truth["checkpoint"][bytes.LastIndex(truth["checkpoint"], []byte("— ")):]...)
		}, verdict.ErrSelectionForged, 0},
		"statement of another selection": {func(f files) { f["selection"] = other["selection"] }, verdict.ErrSelectionMismatch, 0},
		"statement of another run":       {func(f files) { f["selection"] = second["selection"] }, verdict.ErrSelectionMismatch, 0},
		"statement in another version": {func(f files) {
			f["selection"] = resigned(w.key, func(s string) string { return strings.Replace(s, `"v":1`, `"v":2`, 1) })
		}, verdict.ErrSelectionForged, 0},
		"statement with a field more": {func(f files) {
			f["selection"] = resigned(w.key, func(s string) string { return strings.Replace(s, `"by"`, `"x":1,"by"`, 1) })
		}, verdict.ErrSelectionForged, 0},
		"statement of a manifest's kind": {func(f files) { f["selection"] = f["00000000000000000001.manifest"] }, verdict.ErrSelectionForged, 0},
		"withheld frames swapped":        {func(f files) { swap(f, three, 1, 3) }, verdict.ErrReordered, 12},
		"withheld frame dropped":         {func(f files) { s := spans(f[three])[2]; f[three] = slices.Delete(bytes.Clone(f[three]), s[0], s[1]) }, verdict.ErrMissing, 13},
		"withheld frame doubled": {func(f files) {
			s := spans(f[three])[2]
			f[three] = slices.Insert(bytes.Clone(f[three]), s[1], f[three][s[0]:s[1]]...)
		}, verdict.ErrDuplicated, 13},
		"withheld leaf changed":      {func(f files) { body(f, three, 1, func(b []byte) { b[12]++ }) }, verdict.ErrAltered, 12},
		"withheld seq changed":       {func(f files) { body(f, three, 1, func(b []byte) { b[44]++ }) }, verdict.ErrContradiction, 13},
		"withheld run changed":       {func(f files) { body(f, three, 1, func(b []byte) { b[53]++ }) }, verdict.ErrRunMismatch, 12},
		"zeros changed":              {func(f files) { body(f, three, 1, func(b []byte) { b[len(b)-1]++ }) }, verdict.ErrAltered, 12},
		"checksum changed":           {func(f files) { b := bytes.Clone(f[three]); b[9]++; f[three] = b }, verdict.ErrAltered, 11},
		"said to be erased":          {func(f files) { body(f, three, 1, func(b []byte) { copy(b, "CWE1") }) }, verdict.ErrErasureUndeclared, 12},
		"erased said to be withheld": {func(f files) { body(f, segmentTwo, 3, func(b []byte) { copy(b, "CWH1") }) }, verdict.ErrSelectionMismatch, 0},
		"withheld record present":    {func(f files) { put(f, three, 1, full) }, verdict.ErrSelectionMismatch, 0},
		"all present":                {func(f files) { maps.Copy(f, full) }, verdict.ErrSelectionMismatch, 0},
		"one for another":            {func(f files) { put(f, one, 0, full); put(f, one, 4, w.selection(t, w.one, seqs(6, 9))) }, verdict.ErrSelectionMismatch, 0},
		"shown record withheld":      {func(f files) { put(f, segmentTwo, 1, w.selection(t, w.one, seqs(1, 2))) }, verdict.ErrSelectionMismatch, 0},
		"shown record altered":       {func(f files) { body(f, segmentTwo, 1, func(b []byte) { b[40]++ }) }, verdict.ErrAltered, 7},
		"shown and withheld swapped": {func(f files) { swap(f, one, 2, 3) }, verdict.ErrReordered, 3},
		"leaves altered": {func(f files) {
			b := bytes.Clone(f["00000000000000000011.leaves"])
			b[40]++
			f["00000000000000000011.leaves"] = b
		}, verdict.ErrLeaves, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := maps.Clone(truth)
			c.change(f)
			_, err := f.verify(t, w.trust())
			wants(t, err, verdict.ErrDoesNotHold, c.finding, c.seq)
		})
	}
	t.Run("in a directory", func(t *testing.T) { // there only the host's own statements of erasures count
		dir := clone(t, w.one)
		edit(t, segPath(dir, 6), func([]byte) []byte { return w.selection(t, w.one, seqs(1, 2))[segmentTwo] })
		_, err := verifyDir(t, dir, w.trusted)
		wants(t, err, verdict.ErrDoesNotHold, verdict.ErrWithheldUndeclared, 6)
	})
}

// TestAttachments: files below report/ with the host's signature over them.
func TestAttachments(t *testing.T) {
	w, stranger := newWorld(t), newKey(t)
	report := []statement.Attachment{{Name: "report/soc2.json", Data: []byte("{}")}, {Name: "report/soc2.html", Data: []byte("<p>")}}
	pack := func(dir string) files {
		o := w.options()
		o.Attachments, o.Signer, o.By, o.Time = report, w.signer, "ann", at
		o.About = []statement.Subject{{Run: "r-other", Head: merkle.Hash{1}}}
		var b bytes.Buffer
		check(t, proof.WriteBundle(t.Context(), &b, dir, o))
		return unpack(t, b.Bytes())
	}
	truth, second := pack(w.one), pack(w.two)
	r, err := truth.verify(t, w.trust())
	check(t, err)
	if len(r.Attached.Files) != 2 || r.Attached.Files[0].Name != "report/soc2.html" || len(r.Attached.About) != 2 || r.Attached.About[0].Run != "r-one" {
		t.Errorf("%+v", r.Attached)
	}
	for name, c := range map[string]struct {
		change  func(files)
		finding error
	}{
		"file altered": {func(f files) { f["report/soc2.json"] = []byte("[]") }, verdict.ErrAttachmentAltered},
		"file missing": {func(f files) { delete(f, "report/soc2.json") }, verdict.ErrAttachmentAltered},
		"file more":    {func(f files) { f["report/more.html"] = []byte("x") }, verdict.ErrAttachmentUnstated},
		"files swapped": {func(f files) {
			f["report/soc2.json"], f["report/soc2.html"] = f["report/soc2.html"], f["report/soc2.json"]
		}, verdict.ErrAttachmentAltered},
		"statement removed": {func(f files) { delete(f, "attachments") }, verdict.ErrAttachmentUnstated},
		"statement changed": {func(f files) { f["attachments"] = bytes.Replace(f["attachments"], []byte("ann"), []byte("bob"), 1) }, verdict.ErrAttachmentForged},
		"statement by a stranger": {func(f files) {
			signed, err := statement.SignAttachments(stranger.signer, r.Attached.About, report, "ann", at)
			check(t, err)
			f["attachments"] = signed
		}, verdict.ErrAttachmentForged},
		"statement of another run": {func(f files) { f["attachments"] = second["attachments"] }, verdict.ErrAttachmentMismatch},
		"folder upwards":           {func(f files) { f["report/../x"] = []byte("x") }, verdict.ErrBundle},
		"folder below":             {func(f files) { f["report/x/y"] = []byte("x") }, verdict.ErrBundle},
		"hidden":                   {func(f files) { f["report/.x"] = []byte("x") }, verdict.ErrBundle},
		"elsewhere":                {func(f files) { f["reports/x"] = []byte("x") }, verdict.ErrBundle},
	} {
		t.Run(name, func(t *testing.T) {
			f := maps.Clone(truth)
			c.change(f)
			_, err := f.verify(t, w.trust())
			wants(t, err, verdict.ErrDoesNotHold, c.finding, 0)
		})
	}
	t.Run("alone", func(t *testing.T) {
		signed, alone := truth["attachments"], func(fs ...statement.Attachment) error {
			_, err := proof.VerifyAttachments(truth["attachments"], fs, w.trusted)
			return err
		}
		check(t, alone(report...))
		wants(t, alone(report[0]), verdict.ErrDoesNotHold, verdict.ErrAttachmentAltered, 0)
		wants(t, alone(append(report, statement.Attachment{Name: "report/z", Data: nil})...), verdict.ErrDoesNotHold, verdict.ErrAttachmentUnstated, 0)
		_, err := proof.VerifyAttachments(signed, report, stranger.trusted)
		wants(t, err, verdict.ErrCannotBeJudged, verdict.ErrUnknownKey, 0)
	})
	for name, files := range map[string][]statement.Attachment{
		"none": {}, "twice": {report[0], report[0]}, "elsewhere": {{Name: "x", Data: []byte("x")}}, "empty": {{Name: "report/x", Data: nil}}, "path": {{Name: "report/a/b", Data: []byte("x")}},
	} {
		if _, err := statement.SignAttachments(w.signer, []statement.Subject{{Run: "r"}}, files, "", at); err == nil {
			t.Error(name)
		}
	}
}

// FuzzSelection changes one file of a bundle that withholds records. It then does not hold, or
// has the same report.
func FuzzSelection(f *testing.F) {
	w := newWorld(f)
	truth := w.selection(f, w.one, seqs(4, 9))
	names := []string{"selection", segmentTwo, "00000000000000000001.seg"}
	for i, n := range names {
		f.Add(uint(i), uint(len(truth[n])/2), []byte{1})
		f.Add(uint(i), uint(0), []byte("CWE1"))
	}
	f.Fuzz(func(t *testing.T, file, at uint, with []byte) {
		n := names[file%uint(len(names))]
		changed := maps.Clone(truth)
		i := int(at % uint(len(truth[n])+1))
		changed[n] = slices.Concat(truth[n][:i], with, truth[n][min(i+len(with), len(truth[n])):])
		_, err := changed.verify(t, w.trust())
		if same := bytes.Equal(changed[n], truth[n]); same != (err == nil) {
			t.Errorf("%s changed at %d: %v", n, i, err)
		}
	})
}

// FuzzStatements checks that every text that is parsed is canonical.
func FuzzNotes(f *testing.F) {
	w := newWorld(f)
	f.Add(textOf(w.selection(f, w.one, seqs(4, 9))["selection"]))
	signed, err := statement.SignAttachments(w.signer, []statement.Subject{{Run: "r"}}, []statement.Attachment{{Name: "report/x", Data: []byte("<&>")}}, "", at)
	check(f, err)
	f.Add(textOf(signed))
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := statement.ParseSelected(text); err == nil && s.V != 1 {
			t.Errorf("%+v", s)
		}
		a, err := statement.ParseAttachments(text)
		if err != nil {
			return
		}
		for _, file := range a.Files {
			if !strings.HasPrefix(file.Name, statement.AttachmentDir) || strings.Count(file.Name, "/") != 1 || strings.Contains(file.Name, "..") && strings.Contains(file.Name, "/.") {
				t.Errorf("%q", file.Name)
			}
		}
	})
}
