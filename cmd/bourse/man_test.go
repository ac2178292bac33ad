package main

import (
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// TestMan writes the manual twice, in different environments. Every command in the help
// must have a page with its flags, and both manuals must be identical.
func TestMan(t *testing.T) {
	pages := func() map[string]string {
		dir := t.TempDir()
		if got := line.Run(t, "man", dir); got.Code != 0 || got.Out != "" || !strings.Contains(got.Err, "pages to "+dir) {
			t.Fatalf("%+v", got)
		}
		out := map[string]string{}
		names, err := fs.Glob(os.DirFS(dir), "*")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := fs.ReadFile(os.DirFS(dir), name)
			if err != nil {
				t.Fatal(err)
			}
			out[name] = string(text)
		}
		return out
	}
	one := pages()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("BOURSE_API", "http://elsewhere.test")
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	if diff := cmp.Diff(one, pages()); diff != "" {
		t.Errorf("the manuals differ (-first +second):\n%s", diff)
	}
	shown := 2 // help and completion, which are checked below
	everyCommand(func(c *cobra.Command) {
		if !c.IsAvailableCommand() && c.HasParent() || c.IsAdditionalHelpTopicCommand() {
			return
		}
		shown++
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		text := one[name]
		if !strings.Contains(text, ".TH") || !strings.Contains(text, ".SH SYNOPSIS") {
			t.Errorf("%s: %q", name, text)
		}
		for _, year := range []string{"1970", "2023"} {
			if head, _, _ := strings.Cut(text, ".SH"); strings.Contains(head, year) {
				t.Errorf("%s contains a date: %s", name, head)
			}
		}
	})
	for _, name := range []string{"bourse-completion.1", "bourse-completion-bash.1"} {
		if one[name] == "" {
			t.Errorf("no page %s", name)
		}
	}
	if len(one) < shown {
		t.Errorf("%d pages for %d commands", len(one), shown)
	}
}
