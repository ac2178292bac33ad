// Command lab runs the experiments of package sim. It prints the results as tables, and updates the
// tables and plots in docs/placement.md.
//
// Usage, in the module's root:
//
//	go run ./sim/lab [-seeds N] [-docs DIRECTORY] [-only SECTION]
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/bourse-dev/bourse"
)

func main() {
	seeds := flag.Int("seeds", 10, "number of `seeds` over which figures are averaged")
	docs := flag.String("docs", "", "update placement.md and its plots in this `directory`")
	only := flag.String("only", "", "run only this `section`")
	flag.Parse()
	if err := run(os.Stdout, *seeds, *docs, *only); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// result contains a section's tables and plots.
type result struct {
	tables []table
	plots  map[string]plot // by file name
}

func run(out io.Writer, seeds int, docs, only string) error {
	for _, s := range sections {
		if only != "" && only != s.name {
			continue
		}
		began := time.Now()
		r, err := s.run(seeds)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		var text bytes.Buffer
		for _, t := range r.tables {
			t.write(&text)
		}
		fmt.Fprintf(out, "%s (%s)\n\n%s\n", s.name, time.Since(began).Round(time.Second), text.Bytes())
		if docs == "" {
			continue
		}
		if err := replaceSection(filepath.Join(docs, "placement.md"), s.name, text.Bytes()); err != nil {
			return err
		}
		for name, p := range r.plots {
			if err := os.WriteFile(filepath.Join(docs, name), p.svg(), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// replaceSection replaces the text between a section's markers in a Markdown file.
func replaceSection(file, name string, text []byte) error {
	doc, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := []byte("<!-- lab "+name+" -->\n"), []byte("<!-- end -->")
	before, rest, found := bytes.Cut(doc, begin)
	_, after, ended := bytes.Cut(rest, end)
	if !found || !ended {
		return bourse.Errorf(bourse.CodeInvalid, "%s has no markers for section %s", file, name)
	}
	return os.WriteFile(file, bytes.Join([][]byte{before, begin, text, end, after}, nil), 0o644)
}

// table is a table in Markdown.
type table struct {
	header []string
	rows   [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(out *bytes.Buffer) {
	line := func(cells []string) {
		for _, c := range cells {
			fmt.Fprintf(out, "| %s ", c)
		}
		out.WriteString("|\n")
	}
	line(t.header)
	rule := make([]string, len(t.header))
	for i := range rule {
		rule[i] = "---:"
	}
	rule[0] = "---"
	line(rule)
	for _, r := range t.rows {
		line(r)
	}
	out.WriteString("\n")
}
