package cli

import (
	"strings"
	"testing"
)

// TestTableFitsColumns checks how a table is fitted to a terminal. First, the columns that
// may be shortened are narrowed to a readable width. Then columns are omitted in their
// order. Finally, the remaining columns are shortened further. Other columns are never
// shortened.
func TestTableFitsColumns(t *testing.T) {
	tab := NewTable("ID", "NAME", "STATE", "IMAGE", "AGE").Numbers(4).Narrow(3, 1).Drop(4, 3)
	tab.Row("148e21ea1d5389", "a-name-of-thirty-characters-12", "started", "registry.example/team/a-long-image:v1", "3h00m")
	for _, tt := range []struct {
		width int
		want  string
	}{
		{0, "ID              NAME                            STATE    IMAGE                                    AGE\n" +
			"148e21ea1d5389  a-name-of-thirty-characters-12  started  registry.example/team/a-long-image:v1  3h00m\n"},
		{90, "ID              NAME                            STATE    IMAGE                         AGE\n" +
			"148e21ea1d5389  a-name-of-thirty-characters-12  started  registry.example/team/a-l…  3h00m\n"},
		{80, "ID              NAME                        STATE    IMAGE\n" +
			"148e21ea1d5389  a-name-of-thirty-characte…  started  registry.example/team/a-l…\n"},
		{60, "ID              NAME                        STATE\n148e21ea1d5389  a-name-of-thirty-characte…  started\n"},
		{40, "ID              NAME             STATE\n148e21ea1d5389  a-name-of-thir…  started\n"},
		{20, "ID              NAME      STATE\n148e21ea1d5389  a-name-…  started\n"},
	} {
		if got := tab.text(tt.width, false); got != tt.want {
			t.Errorf("width %d: got\n%swant\n%s", tt.width, got, tt.want)
		}
	}
}

// TestTableColors checks that colors do not change the alignment.
func TestTableColors(t *testing.T) {
	tab := NewTable("STATE", "AGE").Paint(0, func(cell string) Tone {
		if cell == "failed" {
			return Bad
		}
		return Plain
	})
	tab.Row("failed", "3s")
	tab.Row("started", "4s")
	if got, want := tab.text(80, true), "STATE    AGE\n\x1b[31mfailed \x1b[0m  3s\nstarted  4s\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := tab.text(80, false); strings.Contains(got, "\x1b") {
		t.Errorf("got %q although colors are disabled", got)
	}
}
