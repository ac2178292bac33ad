package logs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

const someMachine = bourse.MachineID("00000100000001")

func newLog(t *testing.T, size int64, files int) (*Log, Files) {
	t.Helper()
	l := Files{Dir: t.TempDir()}
	m := l.Log(someMachine)
	m.Configure(size, files)
	t.Cleanup(m.Close)
	return m, l
}

func say(m *Log, text string) { m.append(appendLine(nil, noon, "stdout", false, []byte(text))) }

func readLog(t *testing.T, l Files, want driver.LogQuery) []string {
	t.Helper()
	var out []string
	if err := l.Read(someMachine, want, func(l driver.LogLine) error { out = append(out, l.Text); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

func numbered(from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("line %04d", i))
	}
	return out
}

// TestRotation checks which lines remain after rotation, and that a reader that keeps up does not miss any lines while
// files are created and removed.
func TestRotation(t *testing.T) {
	record := int64(len(appendLine(nil, noon, "stdout", false, []byte("line 0000"))))
	m, l := newLog(t, 10*record, 3)
	follower, err := l.open(someMachine, driver.LogQuery{})
	if err != nil {
		t.Fatal(err)
	}
	defer follower.close()
	var followed []string
	for i := range 95 {
		say(m, fmt.Sprintf("line %04d", i))
		if i%7 == 0 {
			if err := follower.read(func(l driver.LogLine) error { followed = append(followed, l.Text); return nil }); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff(numbered(0, 92), followed); diff != "" {
		t.Errorf("lines that a follower received (-want +got):\n%s", diff)
	}
	if files, err := l.numbers(someMachine); err != nil || len(files) != 3 {
		t.Errorf("got files %v, %v, want 3", files, err)
	}
	for tail, want := range map[int][]string{0: numbered(70, 95), 3: numbered(92, 95), 12: numbered(83, 95), 500: numbered(70, 95), -1: nil} {
		if diff := cmp.Diff(want, readLog(t, l, driver.LogQuery{Tail: tail})); diff != "" {
			t.Errorf("tail %d (-want +got):\n%s", tail, diff)
		}
	}
}

// TestPositions checks that a position is valid for every reader and after rotations. If the
// position's file was removed, all lines that still exist follow the position.
func TestPositions(t *testing.T) {
	m, l := newLog(t, 600, 3)
	type told struct{ text, position string }
	read := func(after string) (out []told) {
		t.Helper()
		if err := l.Read(someMachine, driver.LogQuery{After: after}, func(x driver.LogLine) error {
			out = append(out, told{x.Text, x.Position})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return out
	}
	for i := range 20 {
		say(m, fmt.Sprint(i))
	}
	all := read("")
	for i, x := range all {
		if got := read(x.position); !slices.Equal(got, all[i+1:]) {
			t.Errorf("after %v: got %v, want %v", x, got, all[i+1:])
		}
	}
	early := all[0]
	for i := range 60 {
		say(m, fmt.Sprint(20+i))
	}
	whole := read("")
	if got := read(early.position); whole[0] == early || !slices.Equal(got, whole) {
		t.Errorf("after a line in a removed file: got %v, want all of %v", got, whole)
	}
	last := whole[len(whole)-1]
	number, _, _ := parsePosition(last.position)
	if got := read(position(number, 1<<40)); len(got) != 0 {
		t.Errorf("after a lost line: %v", got)
	}
	for _, bad := range []string{"x", "1", "1.", ".1", "0.1", "-1.1", "1.-1", "1.1.1", "99999999999999999999.1", "1.99999999999999999999"} {
		if err := l.Read(someMachine, driver.LogQuery{After: bad}, nil); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("position %q: got %v, want invalid", bad, err)
		}
	}
}

// TestTornLine checks that a reader ignores a record that is still being written, and that the next writer terminates a
// record that a crash has truncated.
func TestTornLine(t *testing.T) {
	m, l := newLog(t, 0, 0)
	say(m, "before")
	m.Close()
	torn := appendLine(nil, noon, "stdout", false, []byte("torn in the middle"))
	path := l.path(someMachine, 1)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(torn[:len(torn)-5]); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := readLog(t, l, driver.LogQuery{}); !cmp.Equal(got, []string{"before"}) {
		t.Errorf("with a partly written line: got %q, want only the complete line", got)
	}
	next := l.Log(someMachine)
	t.Cleanup(next.Close)
	say(next, "after")
	if got, want := readLog(t, l, driver.LogQuery{}), []string{"before", "torn in the mi", "after"}; !cmp.Equal(got, want) {
		t.Errorf("after a crash: got %q, want %q", got, want)
	}
}

// TestLogThatCannotBeWritten checks that the log mentions lost output.
func TestLogThatCannotBeWritten(t *testing.T) {
	m, l := newLog(t, 0, 0)
	if err := os.WriteFile(l.dir(someMachine), nil, 0o600); err != nil { // a file instead of the directory
		t.Fatal(err)
	}
	say(m, "lost")
	if err := os.Remove(l.dir(someMachine)); err != nil {
		t.Fatal(err)
	}
	say(m, "kept")
	got := readLog(t, l, driver.LogQuery{})
	if len(got) != 2 || !strings.Contains(got[0], "were lost") || got[1] != "kept" {
		t.Errorf("got %q, want a note about the lost output and the line that could be written", got)
	}
}

// TestForeignBytes checks that a reader survives files with foreign contents.
func TestForeignBytes(t *testing.T) {
	m, l := newLog(t, 0, 0)
	say(m, "one")
	m.append([]byte("not a record\n\n"))
	m.append(append(bytes.Repeat([]byte("x"), 200<<10), '\n'))
	say(m, "two")
	if got := readLog(t, l, driver.LogQuery{}); !cmp.Equal(got, []string{"one", "two"}) {
		t.Errorf("got %q, want the two lines", got)
	}
	enough := errors.New("enough")
	if err := l.Read(someMachine, driver.LogQuery{}, func(driver.LogLine) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v, want the callback's error", err)
	}
}
