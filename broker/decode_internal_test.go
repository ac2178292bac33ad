package broker

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

func TestSplitWords(t *testing.T) {
	for line, want := range map[string][]string{
		"":                    nil,
		" \t\n":               nil,
		"ls":                  {"ls"},
		"  ls   -l ":          {"ls", "-l"},
		`sh -c 'echo "a  b"'`: {"sh", "-c", `echo "a  b"`},
		`sh -c "echo 'a  b'"`: {"sh", "-c", "echo 'a  b'"},
		`a\ b c`:              {"a b", "c"},
		`""`:                  {""},
		`a''b"c"`:             {"abc"},
		`"\"" "\\" "\n" '\n'`: {`"`, `\`, `\n`, `\n`},
		`echo $HOME *`:        {"echo", "$HOME", "*"},
		"é 'ü ö'":             {"é", "ü ö"},
	} {
		if got, err := splitWords(line); err != nil || !cmp.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", line, got, err, want)
		}
	}
	for _, line := range []string{`'`, `"`, `a "b`, `a\`, `"\`} {
		if got, err := splitWords(line); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%q: %q, %v; want invalid", line, got, err)
		}
	}
}
