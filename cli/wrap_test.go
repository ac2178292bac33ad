package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWrap(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		line          string
		width, indent int
		want          []string
	}{
		{"a line that fits", 16, 2, []string{"a line that fits"}},
		{"a line that does not fit on it", 16, 2, []string{"a line that does", "  not fit on it"}},
		{"one-word-that-is-too-long", 10, 2, []string{"one-word-t", "  hat-is-t", "  oo-long"}},
		{"where there is no screen nothing is broken", 0, 2, []string{"where there is no screen nothing is broken"}},
		{"äöü äöü äöü", 7, 0, []string{"äöü äöü", "äöü"}},
		{"", 10, 2, []string{""}},
	} {
		if diff := cmp.Diff(tt.want, Wrap(tt.line, tt.width, tt.indent)); diff != "" {
			t.Errorf("%q on %d columns (-want +got):\n%s", tt.line, tt.width, diff)
		}
	}
}

// FuzzWrap checks that no part is too wide and that only blanks are lost.
func FuzzWrap(f *testing.F) {
	f.Add("a line that does not fit on it", 16, 2)
	f.Add("one-word-that-is-too-long and others", 3, 9)
	f.Add("  \xff  ", 1, -1)
	f.Fuzz(func(t *testing.T, line string, width, indent int) {
		if width > 1000 || len(line) > 1000 || indent < 0 {
			return
		}
		line = Clean(strings.ToValidUTF8(line, "?"))
		got := Wrap(line, width, indent)
		for _, part := range got {
			if width > 0 && len([]rune(part)) > width {
				t.Errorf("%q is wider than %d characters", part, width)
			}
		}
		if a, b := strings.Join(strings.Fields(line), ""), strings.Join(strings.Fields(strings.Join(got, "")), ""); a != b {
			t.Errorf("%q was wrapped to %q", a, b)
		}
	})
}

func TestBounded(t *testing.T) {
	t.Parallel()
	if got := Bounded([]string{"a", "b", "c"}, 1); !slices.Equal(got, []string{"a", "and 2 more"}) {
		t.Errorf("%q", got)
	}
	if got := Bounded([]string{"a"}, 1); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%q", got)
	}
}

// TestTableWraps checks that the last column wraps, and that KeepEnd shortens columns at
// the beginning.
func TestTableWraps(t *testing.T) {
	t.Parallel()
	tab := NewTable("IMAGE", "STATE", "WHY").Narrow(0, 2).KeepEnd(0).Wrap()
	tab.Row("registry.example/team/shop:v1", "started", "it is as it should be now")
	want := "IMAGE     STATE    WHY\n…shop:v1  started  it is as it should be\n                   now\n"
	if got := tab.text(42, false); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
