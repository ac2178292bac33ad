package servertest

import (
	"slices"
	"testing"
)

// Workers that are there at one time have ranges of their own.
func TestPorts(t *testing.T) {
	first, second := ports(t), ports(t)
	s := New(t, "w1", "serve", "worker")
	i := slices.Index(s.Args, "--ports")
	if i < 0 || first == second || s.Args[i+1] == first || s.Args[i+1] == second {
		t.Errorf("%s, %s and a worker with %v", first, second, s.Args)
	}
}
