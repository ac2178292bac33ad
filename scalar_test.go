package bourse_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

func TestDurationJSON(t *testing.T) {
	for text, want := range map[string]time.Duration{
		`"15s"`: 15 * time.Second, `"1m30s"`: 90 * time.Second, `5000000000`: 5 * time.Second, `""`: 0, `null`: 0, `0`: 0, `"-1s"`: -time.Second,
	} {
		d := bourse.Duration(7)
		if err := json.Unmarshal([]byte(text), &d); err != nil || time.Duration(d) != want {
			t.Errorf("%s: %s, %v; want %s", text, time.Duration(d), err, want)
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
			t.Fatalf("%s came back as %d: %v", text, again, err)
		}
	})
}

func TestSignalJSON(t *testing.T) {
	for text, want := range map[string]bourse.Signal{
		`"SIGTERM"`: "SIGTERM", `"term"`: "SIGTERM", `"sigusr1"`: "SIGUSR1", `15`: "SIGTERM", `"9"`: "SIGKILL", `""`: "", `null`: "",
	} {
		s := bourse.Signal("SIGHUP")
		if err := json.Unmarshal([]byte(text), &s); err != nil || s != want {
			t.Errorf("%s: %s, %v; want %s", text, s, err, want)
		}
	}
	for _, text := range []string{`"SIGNOPE"`, `0`, `-9`, `64`, `"SIG"`, `"SIG15"`, `9.5`, `true`, `["SIGTERM"]`, `"SIGTERM\u0000"`} {
		var s bourse.Signal
		codeIs(t, json.Unmarshal([]byte(text), &s), bourse.CodeInvalid)
	}
	if n := bourse.Signal("SIGTERM").Number(); n != 15 {
		t.Errorf("SIGTERM is %d", n)
	}
	if n := bourse.Signal("15").Number(); n != 0 {
		t.Errorf("an unknown signal is %d", n)
	}
}

func TestRequirementJSON(t *testing.T) {
	for text, want := range map[string]bourse.Requirement{
		`"arm64"`: {Label: "arm64"}, `""`: {}, `2`: {Count: 2}, `"2"`: {Label: "2"}, `4398046511103`: {Count: math.MaxInt64 / (1 << 21)},
	} {
		got := bourse.Requirement{Label: "old", Count: 9}
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
		back, err := json.Marshal(got)
		if err != nil || string(back) != text {
			t.Errorf("%s was written as %s: %v", text, back, err)
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
