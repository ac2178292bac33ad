package app

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

func TestParseLines(t *testing.T) {
	names, values, err := parseLines("# of the shop\r\nA=1\nexport B = \"two words\" \n\nC='x=y'\nKEY=\"\"\"-----BEGIN\nmiddle\n-----END\"\"\"\nEMPTY=\nA=3\n")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for name, v := range values {
		got[name] = *v
	}
	want := map[string]string{"A": "3", "B": "two words", "C": "x=y", "KEY": "-----BEGIN\nmiddle\n-----END", "EMPTY": ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"A", "B", "C", "KEY", "EMPTY"}, names); diff != "" {
		t.Error(diff)
	}
	for _, text := range []string{"", "# nothing\n", "hunter2", "=hunter2", "A=\"\"\"hunter2\n"} {
		if _, _, err := parseLines(text); bourse.CodeOf(err) != bourse.CodeInvalid || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v, want an invalid error that does not contain the text", text, err)
		}
	}
}

func FuzzLines(f *testing.F) {
	f.Add("A=\"\"\"x\ny\"\"\"\nB='1'")
	f.Fuzz(func(t *testing.T, text string) {
		names, values, err := parseLines(text)
		if err == nil && (len(names) == 0 || len(names) != len(values)) {
			t.Errorf("%d names, %d values", len(names), len(values))
		}
	})
}
