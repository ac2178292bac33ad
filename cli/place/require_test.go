package place

import (
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

func TestParseRequirement(t *testing.T) {
	for in, want := range map[string]bourse.Requirement{
		"slots=2": {Count: 2}, "zone=b": {Label: "b"}, `zone="1"`: {Label: "1"}, "ratio=1.5": {Label: "1.5"},
	} {
		if _, got, err := parseRequirement(in); err != nil || got != want {
			t.Errorf("parseRequirement(%q) = %+v, %v; want %+v", in, got, err, want)
		}
	}
	for _, in := range []string{"slots", "slots=0", "slots=-3", "slots=", "=1"} {
		if _, got, err := parseRequirement(in); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("parseRequirement(%q) = %+v, %v; want invalid", in, got, err)
		}
	}
}

func FuzzParseRequirement(f *testing.F) {
	for _, seed := range []string{"slots=10", `zone="1"`, "=", "slots=-1", "\x00", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		_, r, err := parseRequirement(s)
		if err == nil && (r.Count < 0 || r.Count == 0 && r.Label == "" && !strings.HasSuffix(s, `"`)) {
			t.Errorf("%q requires %+v", s, r)
		}
		if err != nil && bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%q: %v, want invalid", s, err)
		}
	})
}
