package schema

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse/view/wire"
)

// FuzzExtra reads whatever may stand in a column of JSON of ours.
func FuzzExtra(f *testing.F) {
	f.Add(`{"a":1,"b":1.5,"c":"x","d":{"base64":"AAE="}}`)
	f.Add(`{"a":[1]}`)
	f.Fuzz(func(t *testing.T, s string) {
		c, err := decodeExtra(s)
		if err != nil {
			return
		}
		text, err := encodeExtra(c.Set())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeExtra(text); err != nil {
			t.Fatalf("%s became %s: %v", s, text, err)
		}
	})
}

func TestExtraKeepsTypes(t *testing.T) {
	want := wire.Columns{
		{Name: "b", Value: []byte{0, 255}}, {Name: "f", Value: 3.0}, {Name: "g", Value: 1e300}, {Name: "i", Value: int64(-1 << 63)}, {Name: "j", Value: int64(9_007_199_254_740_993)}, {Name: "t", Value: "<&> \"äß\u2028\""}, {Name: "z", Value: ""},
	}
	text, err := encodeExtra(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeExtra(text)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(wire.Column{})); d != "" {
		t.Errorf("%s (-want +got):\n%s", text, d)
	}
}

func TestColumnsChangeAndBack(t *testing.T) {
	anyColumns := func(t *rapid.T) wire.Columns {
		var c wire.Columns
		for _, name := range []string{"a", "b", "c", "d"} {
			switch rapid.IntRange(0, 3).Draw(t, name) {
			case 0:
				c = append(c, wire.Column{Name: name, Value: rapid.Int64Range(0, 1).Draw(t, "v")})
			case 1:
				c = append(c, wire.Column{Name: name, Value: []byte{byte(rapid.IntRange(0, 1).Draw(t, "v"))}})
			}
		}
		return c
	}
	rapid.Check(t, func(t *rapid.T) {
		from, to := anyColumns(t), anyColumns(t)
		change := from.Until(to)
		if d := cmp.Diff(to, from.With(change), cmp.AllowUnexported(wire.Column{}), cmp.Transformer("nil", func(c wire.Columns) map[string]wire.Value { return c.Map() })); d != "" {
			t.Fatalf("%v with %v: %s", from, change, d)
		}
		if again := to.Until(to); len(again) != 0 {
			t.Fatalf("no change is %v", again)
		}
		text, err := encodeExtra(to)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeExtra(text)
		if err != nil || len(to.Until(back)) != 0 || len(back) != len(to) {
			t.Fatalf("%v as JSON %s comes back as %v, %v", to, text, back, err)
		}
	})
}
