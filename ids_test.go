package bourse_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "my-app": true, "0-9": true, strings.Repeat("a", 63): true,
		"": false, "-a": false, "a-": false, "A": false, "a.b": false, "a_b": false, "a b": false, "a/b": false, "..": false, "a\n": false, "ä": false,
		"a\x00": false, strings.Repeat("a", 64): false, strings.Repeat("a", 10_000): false,
	} {
		for what, err := range map[string]error{
			"app": bourse.AppName(name).Validate(), "worker": bourse.WorkerID(name).Validate(), "machine": bourse.ValidateMachineName(name),
		} {
			if ok != (err == nil) || (err != nil && (bourse.CodeOf(err) != bourse.CodeInvalid || len(err.Error()) > 300)) {
				t.Errorf("%s name %.20q: %v", what, name, err)
			}
		}
	}
}

// A machine's id is the address of its worker.
func TestMachineIDRoutesToItsWorker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tag := bourse.WorkerTag(rapid.Uint32Range(0, 1<<24-1).Draw(t, "tag"))
		id := bourse.NewMachineID(tag)
		if err := id.Validate(); err != nil || id.Tag() != tag {
			t.Fatalf("%s: tag %s, want %s; %v", id, id.Tag(), tag, err)
		}
	})
	for _, id := range []bourse.MachineID{"", "0", "0000000000000G", "00000a0000000A", "000001000000000", "../../../../x", "-0000100000000"} {
		codeIs(t, id.Validate(), bourse.CodeInvalid)
		if got := id.Tag(); got != 0 {
			t.Errorf("%q has tag %s", id, got)
		}
	}
}

func TestOrderID(t *testing.T) {
	a, b := bourse.NewOrderID(), bourse.NewOrderID()
	if a.Validate() != nil || b.Validate() != nil || a == b {
		t.Errorf("%s, %s", a, b)
	}
	for _, id := range []bourse.OrderID{"", "x", a + "0", a[:25], "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "01J0000000000000000000000U", "01J00000000000000000/../.."} {
		codeIs(t, id.Validate(), bourse.CodeInvalid)
	}
}

// An effect that is told again after a crash has the id it had before.
func TestEventIDAt(t *testing.T) {
	at, seed := time.UnixMilli(1_700_000_000_000), [10]byte{1, 2, 3}
	a := bourse.EventIDAt(at, seed)
	if b := bourse.EventIDAt(at, seed); a != b || len(a) != 26 {
		t.Errorf("%s, then %s", a, b)
	}
	if b := bourse.EventIDAt(at, [10]byte{9}); a == b {
		t.Error("another seed gives the same id")
	}
	if b := bourse.EventIDAt(at.Add(time.Millisecond), [10]byte{}); b <= a {
		t.Errorf("%s is later than %s, and sorts before it", b, a)
	}
	if b := bourse.EventIDAt(time.Time{}, seed); len(b) != 26 {
		t.Errorf("before 1970: %s", b)
	}
}

func TestQuoted(t *testing.T) {
	for in, want := range map[string]string{
		"a":                      `"a"`,
		"a\x00\"\n":              `"a\x00\"\n"`,
		strings.Repeat("x", 100): `"` + strings.Repeat("x", 64) + `…"`,
		strings.Repeat("ä", 100): `"` + strings.Repeat("ä", 32) + `…"`,
	} {
		if got := bourse.Quoted(in); got != want {
			t.Errorf("%.10q: %s, want %s", in, got, want)
		}
	}
}

// Names and regions are what the regular expressions say, which are easier to
// believe.
func TestShapes(t *testing.T) {
	label, region := regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`), regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOfN(rapid.SampledFrom([]rune("az09-AZ`{/: .\n\x00é")), 0, 4, -1).Draw(t, "any")
		if rapid.Bool().Draw(t, "long") {
			s = rapid.StringMatching(`[a-z-]?[a-z0-9-]{28,64}.?`).Draw(t, "s")
		}
		if err := bourse.AppName(s).Validate(); (err == nil) != label.MatchString(s) {
			t.Fatalf("%q as a name: %v", s, err)
		}
		if err := bourse.Region(s).Validate(); (err == nil) != region.MatchString(s) {
			t.Fatalf("%q as a region: %v", s, err)
		}
	})
}
