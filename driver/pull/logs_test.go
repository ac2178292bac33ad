package pull

import (
	"slices"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// TestPositions checks that a position is valid for the output of its job, and precedes the whole
// output of a later job.
func TestPositions(t *testing.T) {
	j := &job{}
	j.Exit, j.Output = &bourse.Exit{At: time.Unix(1, 5)}, []byte("one\ntwo\nthree")
	read := func(after string) (texts, positions []string) {
		t.Helper()
		if err := writeOutput(j, driver.LogQuery{After: after, Tail: -1}, func(l driver.LogLine) error {
			texts, positions = append(texts, l.Text), append(positions, l.Position)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return texts, positions
	}
	all, positions := read("0.9")
	if want := []string{"one", "two", "three"}; !slices.Equal(all, want) {
		t.Fatalf("after an earlier job: got %q, want %q", all, want)
	}
	for i, p := range positions {
		if got, _ := read(p); !slices.Equal(got, all[i+1:]) {
			t.Errorf("after %s: got %q, want %q", p, got, all[i+1:])
		}
	}
	for _, bad := range []string{"x", "1", ".", "1.-1", "1.1.1"} {
		if err := writeOutput(j, driver.LogQuery{After: bad}, nil); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("position %q: got %v, want invalid", bad, err)
		}
	}
}
