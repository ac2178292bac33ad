package logs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse/driver"
)

// spoolBed is a spool whose FIFO is a pipe.
type spoolBed struct {
	l     layout
	log   *Log
	spool *spool
	r, w  *os.File
}

func newSpoolBed(t *testing.T) *spoolBed {
	t.Helper()
	l, err := newLayout(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return newSpoolBedIn(t, l)
}

func newSpoolBedIn(t *testing.T, l layout) *spoolBed {
	t.Helper()
	if err := os.Mkdir(l.spools(someMachine), 0o700); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	b := &spoolBed{l: l, r: r, w: w}
	b.reopen()
	t.Cleanup(func() { b.r.Close(); b.w.Close(); b.spool.close(); b.log.Close() })
	return b
}

// reopen forgets all that is in memory, as a killed keeper does, and repairs.
func (b *spoolBed) reopen() {
	if b.spool != nil {
		b.spool.close()
		b.log.Close()
	}
	b.log = b.l.files().Log(someMachine)
	b.spool = &spool{base: b.l.base(sourceID{someMachine, 1}, "stdout"), stream: "stdout", log: b.log}
}

func (b *spoolBed) take(t *testing.T, text string) {
	t.Helper()
	if _, err := b.w.WriteString(text); err != nil {
		t.Fatal(err)
	}
	for again := false; !again; {
		var err error
		if again, err = b.spool.take(int(b.r.Fd())); err != nil {
			t.Fatalf("take: %v", err)
		}
	}
}

func (b *spoolBed) lines(t *testing.T) []string { return readLog(t, b.l.files(), driver.LogQuery{}) }

// TestRepair kills the keeper after each byte of a write to the log: the next
// one completes it, no matter how often it is killed in doing so.
func TestRepair(t *testing.T) {
	b := newSpoolBed(t)
	b.take(t, "zero\n")
	path := b.l.files().path(someMachine, 1)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b.take(t, strings.Repeat("long", 6000)+"\ntwo\nhalf")
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := len(before); cut <= len(want); cut += 1 + (cut-len(before))/100*37 {
		if err := os.Truncate(path, int64(cut)); err != nil {
			t.Fatal(err)
		}
		b.reopen()
		for range 2 {
			if err := b.spool.repair(); err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("cut at %d: the log has %d bytes, %v, want the %d that were meant", cut, len(got), err, len(want))
		}
	}
	b.reopen()
	b.spool.resume()
	b.take(t, "way\n")
	if diff := cmp.Diff("halfway", b.lines(t)[len(b.lines(t))-1]); diff != "" {
		t.Errorf("the line that was not complete (-want +got):\n%s", diff)
	}
}

// TestRepairOfTheLast: the last line, which has no end, is repaired as such.
// What an earlier release was writing of it is repaired as that meant it.
func TestRepairOfTheLast(t *testing.T) {
	for name, earlier := range map[string]bool{"this release": false, "an earlier one": true} {
		t.Run(name, func(t *testing.T) { repairLast(t, earlier) })
	}
}

func repairLast(t *testing.T, earlier bool) {
	b := newSpoolBed(t)
	b.take(t, "zero\nhalf")
	spooled, err := os.ReadFile(b.spool.file.Name())
	if err != nil {
		t.Fatal(err)
	}
	note := filepath.Join(b.l.spools(someMachine), "kept")
	if err := os.Link(b.spool.notes.Name(), note); err != nil { // finish removes it
		t.Fatal(err)
	}
	if err := b.spool.finish(); err != nil {
		t.Fatal(err)
	}
	path := b.l.files().path(someMachine, 1)
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(want, []byte(" stdout P half\n")) {
		t.Errorf("the log is %q: the last line has not ended", want)
	}
	if earlier {
		want = bytes.Replace(want, []byte(" P half"), []byte(" F half"), 1)
		text, err := os.ReadFile(note)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := decodeNote(text)
		n.Last = true
		if text, err = n.encode(); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(note, text, 0o600), os.WriteFile(path, want, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(note, b.spool.base+".note"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.spool.path(1), spooled, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(len(want)-3)); err != nil {
		t.Fatal(err)
	}
	b.reopen()
	if err := b.spool.repair(); err != nil {
		t.Fatal(err)
	}
	if err := b.spool.finish(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the log is %q, %v, want %q", got, err, want)
	}
}

// TestGenerations: a spool does not grow with its output, wherever lines end.
func TestGenerations(t *testing.T) {
	b := newSpoolBed(t)
	var want []string
	for i := range 3000 {
		want = append(want, fmt.Sprintf("line %d %s", i, strings.Repeat(".", i%700)))
	}
	text := strings.Join(want, "\n") + "\n"
	for i := 0; len(text) > 0; i++ {
		n := min(len(text), 40_000+i)
		b.take(t, text[:n])
		text = text[n:]
		if i%3 == 0 {
			b.reopen()
			if err := b.spool.repair(); err != nil {
				t.Fatal(err)
			}
			b.spool.resume()
		}
		if size := b.spool.size; size > generation+spliceMost {
			t.Fatalf("the spool has %d bytes", size)
		}
	}
	if b.spool.note.Generation < 3 {
		t.Errorf("generation %d: the test shall renew", b.spool.note.Generation)
	}
	if files, err := filepath.Glob(b.spool.base + ".*"); err != nil || len(files) != 2 {
		t.Errorf("files %v, %v, want a note and one generation", files, err)
	}
	if diff := cmp.Diff(want, b.lines(t)); diff != "" {
		t.Errorf("the log (-want +got):\n%s", diff)
	}
}

// TestSpoolOnABadDisk: what cannot be spooled does not stop the program, and
// the log tells of it.
func TestSpoolOnABadDisk(t *testing.T) {
	b := newSpoolBed(t)
	if err := os.Remove(b.l.spools(someMachine)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.w.WriteString("lost\n"); err != nil {
		t.Fatal(err)
	}
	if again, err := b.spool.take(int(b.r.Fd())); again || err != nil {
		t.Fatalf("take: again %v, %v", again, err)
	}
	if err := os.Mkdir(b.l.spools(someMachine), 0o700); err != nil {
		t.Fatal(err)
	}
	b.take(t, "kept\n")
	if got := b.lines(t); len(got) != 2 || !strings.Contains(got[0], "5 bytes of output were lost") || got[1] != "kept" {
		t.Errorf("the log has %q, want a note and the line", got)
	}
}

// TestBrokenNotes: what is no note makes nobody fail, and nothing is written
// into other files because of it.
func TestBrokenNotes(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "short": "{}", "no JSON": strings.Repeat("x", noteSize),
		"before the log": padded(`{"gen":1,"from":0,"to":4,"place":{"file":7,"offset":100}}`),
		"beyond":         padded(`{"gen":1,"from":90,"to":99,"place":{"file":1,"offset":0}}`),
		"negative":       padded(`{"gen":1,"from":-4,"to":4}`),
		"huge":           padded(`{"gen":1,"from":0,"to":9000000000000000000}`),
	} {
		b := newSpoolBed(t)
		for suffix, data := range map[string]string{".note": content, ".1": "one\ntwo\n"} {
			if err := os.WriteFile(b.spool.base+suffix, []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.spool.repair(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := b.spool.finish(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := b.lines(t); len(got) > 2 {
			t.Errorf("%s: the log has %q", name, got)
		}
	}
}

func padded(s string) string { return s + strings.Repeat(" ", noteSize-1-len(s)) + "\n" }

func FuzzDecodeNote(f *testing.F) {
	f.Add([]byte(padded(`{"gen":3,"from":10,"to":20,"at":"2026-01-02T12:00:00.000000005Z","last":true,"place":{"file":2,"offset":77}}`)))
	f.Add([]byte(padded(`{"gen":-1}`)))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, ok := decodeNote(b)
		if !ok {
			return
		}
		encoded, err := n.encode()
		if err != nil {
			t.Fatalf("%+v cannot be encoded: %v", n, err)
		}
		again, ok := decodeNote(encoded)
		if !ok || !again.At.Equal(n.At) || again.Place != n.Place || again.To != n.To || again.From != n.From || again.Last != n.Last {
			t.Errorf("%+v came back as %+v, %v", n, again, ok)
		}
	})
}

// FuzzCut cuts output at any limit and makes the records again from notes of
// the cuts: they must be the same.
func FuzzCut(f *testing.F) {
	f.Add([]byte("one\ntwo\n\nthree"), 5)
	f.Add([]byte(strings.Repeat("x", maxLine)+"\n"+strings.Repeat("y", maxLine+1)+"\n"), 100)
	f.Add([]byte(strings.Repeat("z", 3*maxLine)+"\nab"), maxLine)
	f.Fuzz(func(t *testing.T, data []byte, limit int) {
		for len(data) > 0 {
			records, used := cut(nil, data, noon, "stdout", limit)
			if used == 0 {
				if len(data) > maxLine {
					t.Fatalf("%d bytes are left over", len(data))
				}
				return
			}
			if same := again(data[:used], noon, "stdout", false); !bytes.Equal(same, records) {
				t.Fatalf("made again: %q, was %q", same, records)
			}
			data = data[used:]
		}
	})
}
