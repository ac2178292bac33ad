package process

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/driver"
)

// TestLongAndBinaryOutput prints long lines and arbitrary bytes with a real program. The log's
// maximum file size is so small that every line causes a rotation.
func TestLongAndBinaryOutput(t *testing.T) {
	h := newHost(t, func(c *Config) { c.LogBytes, c.LogFiles = 4096, 1000 })
	d, _ := h.recovered(t)
	task := program("sh", "-c", `
		head -c 100000 /dev/zero | tr '\0' x; echo
		head -c 16384 /dev/zero | tr '\0' y; echo
		printf '\000\001\377\r\n'
		echo; printf 'no newline'`)
	if _, err := d.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	if exit, err := d.Wait(t.Context(), task.ID); err != nil || exit.Failed() {
		t.Fatal(exit, err)
	}
	var got []string
	partial := false
	err := d.Logs(t.Context(), task.ID.Machine, driver.LogQuery{}, func(l driver.LogLine) error {
		if partial {
			got[len(got)-1] += l.Text
		} else {
			got = append(got, l.Text)
		}
		partial = l.Partial
		return nil
	})
	want := []string{strings.Repeat("x", 100000), strings.Repeat("y", 16384), "\x00\x01\xff\r", "", "no newline"}
	if err != nil || len(got) != len(want) {
		t.Fatalf("got %d lines, %v, want %d", len(got), err, len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("line %d has %d bytes, want %d: %.50q", i, len(got[i]), len(want[i]), got[i])
		}
	}
	if files, err := filepath.Glob(filepath.Join(d.layout.logs().Dir, string(task.ID.Machine), "*")); err != nil || len(files) < 5 {
		t.Errorf("got %d files, %v, want many, because the test requires rotation", len(files), err)
	}
}
