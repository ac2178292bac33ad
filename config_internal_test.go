package bourse

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
)

// A config is bounded as a whole, wherever its bytes are; before, a thousand
// strings of 128 KiB each were a config. Files are apart.
func TestConfigIsBoundedAsAWhole(t *testing.T) {
	part := strings.Repeat("x", 64<<10)
	many := func(n int, size int) map[string]string {
		out := map[string]string{}
		for i := range n {
			out["k"+strconv.Itoa(i)] = strings.Repeat("x", size)
		}
		return out
	}
	for name, tt := range map[string]struct {
		change func(*Config)
		ok     bool
	}{
		"metadata":           {func(c *Config) { c.Metadata = many(5, 60<<10) }, false},
		"many small ones":    {func(c *Config) { c.Metadata = many(1000, 300) }, false},
		"environment":        {func(c *Config) { c.Env = many(5, 60<<10) }, false},
		"command":            {func(c *Config) { c.Init.Exec = []string{part, part, part, part, part} }, false},
		"what is kept":       {func(c *Config) { c.Services = json.RawMessage(`["` + part + part + part + part + `"]`) }, false},
		"all together":       {func(c *Config) { c.Env, c.Metadata, c.Init.Exec = many(2, 50<<10), many(2, 50<<10), []string{part} }, false},
		"as much as fits":    {func(c *Config) { c.Env, c.Metadata = many(2, 50<<10), many(2, 50<<10) }, true},
		"files are apart":    {func(c *Config) { c.Files = []File{{GuestPath: "/a", RawValue: make([]byte, 1<<20)}} }, true},
		"one string, escape": {func(c *Config) { c.Env = map[string]string{"a": strings.Repeat("\x01", 64<<10)} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := Config{Image: "nginx", Guest: &Guest{}}
			tt.change(&c)
			err := c.Normalize()
			if (err == nil) != tt.ok || err != nil && CodeOf(err) != CodeInvalid {
				t.Errorf("got %v, want ok %v", err, tt.ok)
			}
		})
	}
}

func BenchmarkConfigValidate(b *testing.B) {
	c := Config{Image: "nginx", Guest: &Guest{}, Env: map[string]string{"A": "1", "B": "2"}, Metadata: map[string]string{"role": "web"}}
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Normalize(); err != nil {
			b.Fatal(err)
		}
	}
}
