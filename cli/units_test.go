package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

func TestParseMiB(t *testing.T) {
	for in, want := range map[string]bourse.MiB{
		"512": 512, "512m": 512, "512MB": 512, "512MiB": 512, "8GiB": 8192, "8g": 8192, "8 GB": 8192,
		"1.5GiB": 1536, "1T": 1 << 20, "0": 0, "1k": 1, "1025KiB": 2, " 64 ": 64, "0.5": 1,
	} {
		if got, err := parseMiB(in); err != nil || got != want {
			t.Errorf("parseMiB(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-1", "-1GiB", "NaN", "Inf", "1e9", "8Q", "GiB", "1.GiB", "0x10", "999999999999999T", "8 G iB", "1_000", "８GiB"} {
		if got, err := parseMiB(in); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("parseMiB(%q) = %d, %v; want invalid", in, got, err)
		}
	}
}

func TestParseCPUs(t *testing.T) {
	for in, want := range map[string]bourse.MilliCPU{"4": 4000, "0.5": 500, "0.1": 100, "0.0019": 1, "0": 0} {
		if got, err := parseCPUs(in); err != nil || got != want {
			t.Errorf("parseCPUs(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-1", "NaN", "+Inf", "1e3", "four", "1.", ".5", "9999999999"} {
		if got, err := parseCPUs(in); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("parseCPUs(%q) = %d, %v; want invalid", in, got, err)
		}
	}
}

func TestParseCounts(t *testing.T) {
	got, err := parseCounts([]string{"slots=10", "gpu-seats=0"})
	want := bourse.Amounts{{Resource: "gpu-seats", Amount: 0}, {Resource: "slots", Amount: 10}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("parseCounts: %v (-want +got)\n%s", err, diff)
	}
	for _, in := range []string{"slots", "=1", "slots=", "slots=-1", "slots=1.5", "slots=99999999999999999999", "Slots=1", "a b=1", "../x=1"} {
		if got, err := parseCounts([]string{in}); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("parseCounts(%q) = %v, %v; want invalid", in, got, err)
		}
	}
	if _, err := parseCounts([]string{"slots=1", "slots=2"}); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("a countable given twice: %v, want invalid", err)
	}
}

func TestParsePairs(t *testing.T) {
	got, err := parsePairs([]string{"A=1", "B=", "C=x=y"})
	want := map[string]string{"A": "1", "B": "", "C": "x=y"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("parsePairs: %v (-want +got)\n%s", err, diff)
	}
	for _, in := range [][]string{{"A"}, {"=1"}, {"A=1", "A=2"}} {
		if _, err := parsePairs(in); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("parsePairs(%q): %v, want invalid", in, err)
		}
	}
}

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

func TestParsePortsFactorListenSeconds(t *testing.T) {
	if got, err := parsePorts("20000-29999"); err != nil || got != (portRange{20000, 29999}) {
		t.Errorf("parsePorts: %v, %v", got, err)
	}
	for _, in := range []string{"", "1", "0-5", "5-4", "1-65536", "a-b", "-1-5"} {
		if got, err := parsePorts(in); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("parsePorts(%q) = %v, %v; want invalid", in, got, err)
		}
	}
	if name, f, err := parseFactor("shared=8"); err != nil || name != "shared" || f != 8 {
		t.Errorf("parseFactor: %s, %g, %v", name, f, err)
	}
	for _, in := range []string{"shared", "shared=0.5", "shared=-1", "shared=NaN", "shared=Inf", "shared=1e2", "shared=1001"} {
		if _, f, err := parseFactor(in); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("parseFactor(%q) = %g, %v; want invalid", in, f, err)
		}
	}
	for in, want := range map[string]string{"localhost:80": "127.0.0.1:80", ":0": "0.0.0.0:0", "[::1]:9": "[::1]:9"} {
		if got, err := parseListen(in); err != nil || got.String() != want {
			t.Errorf("parseListen(%q) = %s, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "80", "host.example:80", "127.0.0.1", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:http"} {
		if got, err := parseListen(in); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("parseListen(%q) = %s, %v; want invalid", in, got, err)
		}
	}
	for in, want := range map[string]time.Duration{"30": 30 * time.Second, "1m30s": 90 * time.Second, "0": 0} {
		if got, err := parseSeconds(in); err != nil || got != want {
			t.Errorf("parseSeconds(%q) = %s, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-5", "-5s", "soon", "99999999999"} {
		if got, err := parseSeconds(in); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("parseSeconds(%q) = %s, %v; want invalid", in, got, err)
		}
	}
}

// FuzzUnits looks for a text that makes an amount out of its range, or an
// error that is not the caller's fault.
func FuzzUnits(f *testing.F) {
	for _, seed := range []string{"8GiB", "slots=10", "20000-29999", "shared=8", "0.5", "127.0.0.1:4280", `zone="1"`, "1m30s", "-1", "=", "\x00", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		check := func(what string, inRange bool, err error) {
			if err == nil && !inRange {
				t.Errorf("%s took %q and gave what is out of range", what, s)
			}
			if err != nil && bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("%s(%q): %v is no invalid", what, s, err)
			}
		}
		m, err := parseMiB(s)
		check("parseMiB", m >= 0 && m <= bourse.MaxAmount, err)
		c, err := parseCPUs(s)
		check("parseCPUs", c >= 0 && c <= bourse.MaxAmount, err)
		a, err := parseCounts([]string{s})
		check("parseCounts", a.Validate() == nil, err)
		_, x, err := parseFactor(s)
		check("parseFactor", x >= 1 && x <= 1000, err)
		p, err := parsePorts(s)
		check("parsePorts", p.First > 0 && p.First <= p.Last, err)
		d, err := parseSeconds(s)
		check("parseSeconds", d >= 0, err)
		_, r, err := parseRequirement(s)
		check("parseRequirement", r.Count >= 0 && (r.Count > 0 || r.Label != "" || strings.HasSuffix(s, `"`)), err)
		l, err := parseListen(s)
		check("parseListen", l.IsValid(), err)
	})
}
