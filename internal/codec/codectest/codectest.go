// Package codectest helps to test what package codec writes: it has bodies as JSON
// text, and values in which every field is set.
package codectest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/internal/codec"
)

// Body returns a JSON text as package codec writes the same value. What is no
// JSON is returned as it is.
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

// whole returns v with its numbers as whole numbers where they are.
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
