package bourse_test

import (
	"encoding/json"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
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

// TestMachineIDRoutesToItsWorker checks that a machine's ID contains its worker's tag.
func TestMachineIDRoutesToItsWorker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tag := bourse.WorkerTag(rapid.Uint32Range(0, 1<<24-1).Draw(t, "tag"))
		id := bourse.NewMachineID(tag)
		if err := id.Validate(); err != nil || id.Tag() != tag {
			t.Fatalf("%s: got tag %s and error %v, want tag %s", id, id.Tag(), err, tag)
		}
	})
	for _, id := range []bourse.MachineID{"", "0", "0000000000000G", "00000a0000000A", "000001000000000", "../../../../x", "-0000100000000"} {
		codeIs(t, id.Validate(), bourse.CodeInvalid)
		if got := id.Tag(); got != 0 {
			t.Errorf("%q: got tag %s, want none", id, got)
		}
	}
}

func TestOrderID(t *testing.T) {
	a, b := bourse.NewOrderID(), bourse.NewOrderID()
	if a.Validate() != nil || b.Validate() != nil || a == b {
		t.Errorf("got %s and %s, want two different valid IDs", a, b)
	}
	for _, id := range []bourse.OrderID{"", "x", a + "0", a[:25], "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "01J0000000000000000000000U", "01J00000000000000000/../.."} {
		codeIs(t, id.Validate(), bourse.CodeInvalid)
	}
}

// TestEventIDAt checks that an event that is reported again after a crash gets the same ID.
func TestEventIDAt(t *testing.T) {
	at, seed := time.UnixMilli(1_700_000_000_000), [10]byte{1, 2, 3}
	a := bourse.EventIDAt(at, seed)
	if b := bourse.EventIDAt(at, seed); a != b || len(a) != 26 {
		t.Errorf("got %s, then %s, want the same ID", a, b)
	}
	if b := bourse.EventIDAt(at, [10]byte{9}); a == b {
		t.Error("two seeds produced the same ID")
	}
	if b := bourse.EventIDAt(at.Add(time.Millisecond), [10]byte{}); b <= a {
		t.Errorf("the ID %s of the later event does not sort after %s", b, a)
	}
	if b := bourse.EventIDAt(time.Time{}, seed); len(b) != 26 {
		t.Errorf("an event before 1970: got %q, want an ID of 26 characters", b)
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

// TestShapes compares the hand-written checks of names and regions with equivalent regular
// expressions, which are easier to read.
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

// TestTagsFollowFromTheID checks that the tags of a worker are the same in every release, because
// the IDs of machines contain them.
func TestTagsFollowFromTheID(t *testing.T) {
	if got, want := bourse.WorkerID("gru-1").Tags(), ([bourse.TagChoices]bourse.WorkerTag{0xdb18dd, 0x5183c1, 0xe57824, 0x5006d4}); got != want {
		t.Errorf("tags of gru-1: got %06x, want %06x in every release", got, want)
	}
	if bourse.WorkerID("gru-2").TagRank(bourse.WorkerID("gru-1").Tags()[0]) != bourse.TagChoices {
		t.Error("gru-2 may choose a tag of gru-1")
	}
	rapid.Check(t, func(t *rapid.T) {
		id := bourse.WorkerID(rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "id"))
		for i, tag := range id.Tags() {
			if tag == 0 || tag > 0xffffff || id.TagRank(tag) > i {
				t.Errorf("tag %[1]d of %[2]s: got %06[3]x with rank %[4]d, want 24 bits and at most rank %[1]d", i, id, tag, id.TagRank(tag))
			}
		}
	})
}

func TestDurationJSON(t *testing.T) {
	for text, want := range map[string]time.Duration{
		`"15s"`: 15 * time.Second, `"1m30s"`: 90 * time.Second, `5000000000`: 5 * time.Second, `""`: 0, `null`: 0, `0`: 0, `"-1s"`: -time.Second,
	} {
		d := bourse.Duration(7)
		if err := json.Unmarshal([]byte(text), &d); err != nil || time.Duration(d) != want {
			t.Errorf("%s: got %s, %v; want %s", text, time.Duration(d), err, want)
		}
	}
	for _, text := range []string{`"15"`, `"soon"`, `1.5`, `1e3`, `true`, `{}`, `[]`, `9223372036854775808`, `"9999999h"`} {
		var d bourse.Duration
		codeIs(t, json.Unmarshal([]byte(text), &d), bourse.CodeInvalid)
	}
	rapid.Check(t, func(t *rapid.T) {
		d, again := bourse.Duration(rapid.Int64().Draw(t, "d")), bourse.Duration(0)
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &again); err != nil || again != d {
			t.Fatalf("%s was decoded as %d: %v", text, again, err)
		}
	})
}

func TestSignalJSON(t *testing.T) {
	for text, want := range map[string]bourse.Signal{
		`"SIGTERM"`: "SIGTERM", `"term"`: "SIGTERM", `"sigusr1"`: "SIGUSR1", `15`: "SIGTERM", `"9"`: "SIGKILL", `""`: "", `null`: "",
	} {
		s := bourse.Signal("SIGHUP")
		if err := json.Unmarshal([]byte(text), &s); err != nil || s != want {
			t.Errorf("%s: got %s, %v; want %s", text, s, err, want)
		}
	}
	for _, text := range []string{`"SIGNOPE"`, `0`, `-9`, `64`, `"SIG"`, `"SIG15"`, `9.5`, `true`, `["SIGTERM"]`, `"SIGTERM\u0000"`} {
		var s bourse.Signal
		codeIs(t, json.Unmarshal([]byte(text), &s), bourse.CodeInvalid)
	}
	if n := bourse.Signal("SIGTERM").Number(); n != 15 {
		t.Errorf("number of SIGTERM: got %d, want 15", n)
	}
	if n := bourse.Signal("15").Number(); n != 0 {
		t.Errorf("number of an unknown signal: got %d, want 0", n)
	}
}

func TestRequirementJSON(t *testing.T) {
	for text, want := range map[string]bourse.Requirement{
		`"arm64"`: {Label: "arm64"}, `""`: {}, `2`: {Count: 2}, `"2"`: {Label: "2"}, `4398046511103`: {Count: math.MaxInt64 / (1 << 21)},
	} {
		got := bourse.Requirement{Label: "old", Count: 9}
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", text, got, err, want)
		}
		back, err := json.Marshal(got)
		if err != nil || string(back) != text {
			t.Errorf("%s was encoded as %s: %v", text, back, err)
		}
	}
	for _, text := range []string{`0`, `-1`, `1.5`, `1e400`, `9223372036854775807`, `null`, `true`, `{}`, `["a"]`} {
		var r bourse.Requirement
		codeIs(t, json.Unmarshal([]byte(text), &r), bourse.CodeInvalid)
	}
}

func TestRequirementsValidate(t *testing.T) {
	for name, ok := range map[string]bool{
		"arch": true, "limit.memory": true, "gpu.a10": true, "slots": true, "": false, ".": false, "a..b": false, "A": false, "a b": false,
		"a/b": false, "-a": false, "a\x00": false, strings.Repeat("a", 64): false, strings.Repeat("a.", 64) + "a": false,
	} {
		err := bourse.Requirements{name: {Label: "x"}}.Validate()
		if ok != (err == nil) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, bad := range []bourse.Requirement{
		{Label: strings.Repeat("x", 256)}, {Label: "\xff"}, {Count: -1}, {Count: bourse.MaxAmount + 1}, {Count: 1, Label: "x"},
	} {
		codeIs(t, bourse.Requirements{"a": bad}.Validate(), bourse.CodeInvalid)
	}
}

// TestOrderIDsMeanSomethingOnlyWithinTheirApp checks that two apps that choose the same ID refer to
// two different orders. Each app must find its own order, both by the chosen ID and by the ID in
// the reply.
func TestOrderIDsMeanSomethingOnlyWithinTheirApp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var id ulid.ULID
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		ours := rapid.StringMatching(`[0-9A-Z]{0,26}`).Draw(t, "ours")
		theirs := rapid.StringMatching(`[0-9A-Z]{0,26}`).Filter(func(s string) bool { return s != ours }).Draw(t, "theirs")
		chosen := bourse.OrderID(id.String())

		a, b := chosen.In(ours), chosen.In(theirs)
		if a == b {
			t.Fatalf("chosen ID %s: got %s in both apps", chosen, a)
		}
		if again := a.In(ours); again != a {
			t.Errorf("In changed the derived ID %s to %s", a, again)
		}
		if lower := bourse.OrderID(strings.ToLower(string(chosen))).In(ours); lower != a {
			t.Errorf("%s in lower case: got %s, want %s", chosen, lower, a)
		}
		if stolen := a.In(theirs); stolen == a {
			t.Errorf("the other app can refer to the order with the ID %s", a)
		}
		if err := a.Validate(); err != nil {
			t.Error(err)
		}
		if ulid.MustParse(string(a)).Time() != id.Time() {
			t.Errorf("the time in %s differs from the time in the chosen ID %s", a, chosen)
		}
	})
}

func TestReservationKeysMeanSomethingOnlyWithinTheirApp(t *testing.T) {
	key := bourse.NewReservationKey()
	a, b := key.In("A"), key.In("B")
	if a == b || a.In("A") != a || a.In("B") == a || a.Validate() != nil {
		t.Errorf("reservation key %s: got %s in app A and %s in app B", key, a, b)
	}
	if order := bourse.OrderID(key).In("A"); string(order) == string(a) {
		t.Errorf("an order and a reservation got the same ID %s", order)
	}
}

func TestAMalformedIDIsNotDerived(t *testing.T) {
	for _, text := range []string{"", "x", "01ARZ3NDEKTSV4RRFFQ69G5FA", "81ARZ3NDEKTSV4RRFFQ69G5FAVU"} {
		if got := bourse.OrderID(text).In("A"); got != "" {
			t.Errorf("%q: got %s, want no ID", text, got)
		}
	}
}
