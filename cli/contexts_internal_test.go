package cli

import (
	"testing"

	"github.com/pelletier/go-toml/v2"
)

// FuzzContexts checks that decoding a contexts file never panics, and that encoding the
// contexts and decoding them again preserves them.
func FuzzContexts(f *testing.F) {
	f.Add([]byte("current = \"a\"\n[context.a]\napi = \"https://a\"\nca = \"x\"\ntoken = \"y\"\n"))
	f.Add([]byte("[context.a]\n[context.b]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var c, again Contexts
		if decodeContexts(text, &c) != nil {
			return
		}
		out, err := toml.Marshal(&c)
		if err != nil {
			t.Fatal(err)
		}
		if err := decodeContexts(out, &again); err != nil {
			t.Fatalf("%q was encoded as %q: %v", text, out, err)
		}
		if again.Current != c.Current || len(again.ByName) != len(c.ByName) {
			t.Errorf("decoded %+v, after encoding %+v", c, again)
		}
	})
}
