package cli

import "testing"

func TestNearest(t *testing.T) {
	for word, want := range map[string]string{
		"machne": "machine", "mahcine": "machine", "lst": "list", "mach": "machine", "deploy": "", "": "", "m": "machine", "p": "ps", "machine": "machine",
	} {
		if got := Nearest(word, []string{"ps", "list", "machine"}); got != want {
			t.Errorf("the nearest word to %q is %q, want %q", word, got, want)
		}
	}
}
