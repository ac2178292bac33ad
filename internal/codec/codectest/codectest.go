// Package codectest helps test values that package codec encodes: it converts JSON text to codec's encoding, and sets
// every field of a value.
package codectest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/internal/codec"
)

// Body converts JSON text to package codec's encoding. Text that is not JSON is returned unchanged.
func Body(t testing.TB, text string) []byte {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil || d.More() {
		return []byte(text)
	}
	b, err := codec.Marshal(whole(v))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// whole converts the whole numbers in v to int64, and other numbers to float64.
func whole(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = whole(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = whole(v[k])
		}
	}
	return v
}
