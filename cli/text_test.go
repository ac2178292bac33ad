package cli

import (
	"strings"
	"testing"
	"time"
)

func TestText(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{Age(59 * time.Second), "59s"},
		{Age(61 * time.Minute), "1h01m"},
		{Age(50 * time.Hour), "2d"},
		{Age(-time.Hour), "0s"},
		{Took(900), "0 µs"},
		{Took(1500 * time.Microsecond), "1.50 ms"},
		{Took(42 * time.Millisecond), "42.0 ms"},
		{Took(1500 * time.Millisecond), "1.50 s"},
		{MiB(512), "512 MiB"},
		{MiB(1536), "1.5 GiB"},
		{MiB(1025), "1025 MiB"},
		{MiB(3840), "3.75 GiB"},
		{MiB(1 << 20), "1 TiB"},
		{MiB(0), "0 MiB"},
		{Amount("cpu", 62), "0.062 cores"},
		{Amount("slots", 3), "3"},
		{Amount("gpu.l40s", 1), "1"},
		{Clean("a\x07b\u200bc"), `a\ab\u200bc`},
		{Cut("abcdef", 4), "abc…"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

func TestTableFitsTheScreen(t *testing.T) {
	tab := NewTable("ID", "DETAIL").Narrow(1)
	tab.Row("1", strings.Repeat("long ", 40))
	for line := range strings.Lines(tab.text(40, false)) {
		if n := len([]rune(line)); n > 41 {
			t.Errorf("a line has %d characters, want at most 40: %q", n, line)
		}
	}
}
