package cli

import (
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
		if got, err := ParseMiB(in); err != nil || got != want {
			t.Errorf("parseMiB(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-1", "-1GiB", "NaN", "Inf", "1e9", "8Q", "GiB", "1.GiB", "0x10", "999999999999999T", "8 G iB", "1_000", "８GiB"} {
		if got, err := ParseMiB(in); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("parseMiB(%q) = %d, %v; want invalid", in, got, err)
		}
	}
}

func TestParseCPUs(t *testing.T) {
	for in, want := range map[string]bourse.MilliCPU{"4": 4000, "0.5": 500, "0.1": 100, "0.0019": 1, "0": 0} {
		if got, err := ParseCPUs(in); err != nil || got != want {
			t.Errorf("parseCPUs(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-1", "NaN", "+Inf", "1e3", "four", "1.", ".5", "9999999999"} {
		if got, err := ParseCPUs(in); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("parseCPUs(%q) = %d, %v; want invalid", in, got, err)
		}
	}
}

func TestParseCounts(t *testing.T) {
	got, err := ParseCounts([]string{"slots=10", "gpu-seats=0"})
	want := bourse.Amounts{{Resource: "gpu-seats", Amount: 0}, {Resource: "slots", Amount: 10}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("parseCounts: %v (-want +got)\n%s", err, diff)
	}
	for _, in := range []string{"slots", "=1", "slots=", "slots=-1", "slots=1.5", "slots=99999999999999999999", "Slots=1", "a b=1", "../x=1"} {
		if got, err := ParseCounts([]string{in}); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("parseCounts(%q) = %v, %v; want invalid", in, got, err)
		}
	}
	if _, err := ParseCounts([]string{"slots=1", "slots=2"}); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("a duplicate name: %v, want invalid", err)
	}
}

func TestParsePairs(t *testing.T) {
	got, err := ParsePairs([]string{"A=1", "B=", "C=x=y"})
	want := map[string]string{"A": "1", "B": "", "C": "x=y"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("parsePairs: %v (-want +got)\n%s", err, diff)
	}
	for _, in := range [][]string{{"A"}, {"=1"}, {"A=1", "A=2"}} {
		if _, err := ParsePairs(in); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("parsePairs(%q): %v, want invalid", in, err)
		}
	}
}

func TestParsePortsFactorListenSeconds(t *testing.T) {
	if got, err := ParsePorts("20000-29999"); err != nil || got != (PortRange{20000, 29999}) {
		t.Errorf("parsePorts: %v, %v", got, err)
	}
	for _, in := range []string{"", "1", "0-5", "5-4", "1-65536", "a-b", "-1-5"} {
		if got, err := ParsePorts(in); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("parsePorts(%q) = %v, %v; want invalid", in, got, err)
		}
	}
	if name, f, err := ParseFactor("shared=8"); err != nil || name != "shared" || f != 8 {
		t.Errorf("parseFactor: %s, %g, %v", name, f, err)
	}
	for _, in := range []string{"shared", "shared=0.5", "shared=-1", "shared=NaN", "shared=Inf", "shared=1e2", "shared=1001"} {
		if _, f, err := ParseFactor(in); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("parseFactor(%q) = %g, %v; want invalid", in, f, err)
		}
	}
	for in, want := range map[string]string{"localhost:80": "127.0.0.1:80", ":0": "0.0.0.0:0", "[::1]:9": "[::1]:9"} {
		if got, err := ParseListen(in); err != nil || got.String() != want {
			t.Errorf("parseListen(%q) = %s, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "80", "host.example:80", "127.0.0.1", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:http"} {
		if got, err := ParseListen(in); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("parseListen(%q) = %s, %v; want invalid", in, got, err)
		}
	}
	for in, want := range map[string]time.Duration{"30": 30 * time.Second, "1m30s": 90 * time.Second, "0": 0} {
		if got, err := ParseSeconds(in); err != nil || got != want {
			t.Errorf("parseSeconds(%q) = %s, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-5", "-5s", "soon", "99999999999"} {
		if got, err := ParseSeconds(in); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("parseSeconds(%q) = %s, %v; want invalid", in, got, err)
		}
	}
}

// FuzzUnits checks that no text results in an amount that is out of range, or in an error
// with a code other than invalid.
func FuzzUnits(f *testing.F) {
	for _, seed := range []string{"8GiB", "slots=10", "20000-29999", "shared=8", "0.5", "127.0.0.1:4280", `zone="1"`, "1m30s", "-1", "=", "\x00", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		check := func(what string, inRange bool, err error) {
			if err == nil && !inRange {
				t.Errorf("%s(%q) is out of range", what, s)
			}
			if err != nil && bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("%s(%q): %v, want invalid", what, s, err)
			}
		}
		m, err := ParseMiB(s)
		check("parseMiB", m >= 0 && m <= bourse.MaxAmount, err)
		c, err := ParseCPUs(s)
		check("parseCPUs", c >= 0 && c <= bourse.MaxAmount, err)
		a, err := ParseCounts([]string{s})
		check("parseCounts", a.Validate() == nil, err)
		_, x, err := ParseFactor(s)
		check("parseFactor", x >= 1 && x <= 1000, err)
		p, err := ParsePorts(s)
		check("parsePorts", p.First > 0 && p.First <= p.Last, err)
		d, err := ParseSeconds(s)
		check("parseSeconds", d >= 0, err)
		l, err := ParseListen(s)
		check("parseListen", l.IsValid(), err)
	})
}
