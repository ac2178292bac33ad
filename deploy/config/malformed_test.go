package config_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy/config"
)

// TestMalformed checks that the error for each mistake contains the position and describes the valid values.
func TestMalformed(t *testing.T) {
	cases, err := os.ReadFile("testdata/malformed.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	n := 0
	for block := range strings.SplitSeq(strings.TrimPrefix(string(cases), "=== "), "\n=== ") {
		head, rest, _ := strings.Cut(block, "\n")
		text, want, _ := strings.Cut(rest+"\n", "--- error\n")
		name, file, ok := strings.Cut(head, " | ")
		if !ok {
			file = "fly.toml"
		}
		got := problemOf(t, file, text)
		if n++; !*update && strings.TrimRight(want, "\n") != got {
			t.Errorf("%s (-want +got):\n%s", name, cmp.Diff(strings.TrimRight(want, "\n"), got))
		}
		out.WriteString("=== " + head + "\n" + text + "--- error\n" + got + "\n")
	}
	if n < 30 {
		t.Errorf("%d cases, want 30 or more", n)
	}
	if *update {
		if err := os.WriteFile("testdata/malformed.txt", []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func problemOf(t *testing.T, file, text string) string {
	t.Helper()
	c, err := config.Parse(file, []byte(text))
	if err == nil {
		o := options()
		if c.Build != nil && c.Build.Image != "" {
			o.Image = ""
		}
		_, _, err = c.App(o)
	}
	if err == nil {
		t.Errorf("no error for %s", text)
		return ""
	}
	if bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("%v has code %s", err, bourse.CodeOf(err))
	}
	return bourse.MessageOf(err)
}
