package bourse_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// unclear are words that readers had to read twice, with what the field says, by
// a part that each has in lower case: it is found a hundred times sooner.
var unclear = map[string]struct {
	word  *regexp.Regexp
	plain string
}{
	"s whether": {regexp.MustCompile(`(?i)\b(tells|says) whether\b`), "reports whether"},
	"anew":      {regexp.MustCompile(`(?i)\banew\b`), "again, from scratch"},
	"of chance": {regexp.MustCompile(`(?i)\bof chan[c]e\b`), "random, at random"},
	"under way": {regexp.MustCompile(`(?i)\bunder way\b`), "in progress"},
	"whoever":   {regexp.MustCompile(`(?i)\bwhoever\b`), "the caller, any client"},
	"mend":      {regexp.MustCompile(`(?i)\bmend(s|ed|ing)?\b`), "fix, repair"},
	"over":      {regexp.MustCompile(`(?i)\btak(e|es|en|ing) over\b`), "adopt, reuse"},
	"nobody ":   {regexp.MustCompile(`(?i)\bnobody (else|could|can|is|has|knows|asks|waits|answers)\b`), "no one, no worker"},
}

// TestPlainWords: code and documents are in the English of Go's own library.
func TestPlainWords(t *testing.T) {
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); base != "." && strings.HasPrefix(base, ".") || base == "testdata" || base == "bin" {
				return filepath.SkipDir
			}
			return nil
		}
		if ext := filepath.Ext(name); ext != ".go" && ext != ".md" || name == "words_test.go" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		lower := strings.ToLower(string(text))
		for part, u := range unclear {
			if !strings.Contains(lower, part) {
				continue
			}
			for n, line := range strings.Split(string(text), "\n") {
				if found := u.word.FindString(line); found != "" {
					t.Errorf("%s:%d: %q: write %s", name, n+1, found, u.plain)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
