package serve

import (
	"bytes"
	"fmt"
	"testing"
)

// TestLastLines checks that a server's output is printed immediately, unless the
// cluster is being stopped. In that case, the last lines are stored, and printed if the
// server fails.
func TestLastLines(t *testing.T) {
	var out bytes.Buffer
	quit := make(chan struct{})
	n := &prefixWriter{name: "gru-1", to: &out, quit: quit}
	write := func(text string) {
		if _, err := n.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	write("hello\nsecond ")
	write("line\n")
	if want := "gru-1: hello\ngru-1: second line\n"; out.String() != want {
		t.Errorf("%q, want %q", &out, want)
	}
	out.Reset()
	close(quit)
	for i := range 20 {
		write(fmt.Sprintf("late %d\n", i))
	}
	write("error: the \x1b[31mreason")
	if out.Len() > 0 {
		t.Errorf("while the cluster is being stopped: %q", &out)
	}
	n.printStored()
	if want := "gru-1: late 16\ngru-1: late 17\ngru-1: late 18\ngru-1: late 19\ngru-1: error: the \\x1b[31mreason\n"; out.String() != want {
		t.Errorf("%q, want %q", &out, want)
	}
}
