package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
)

// Noun returns a command that has only subcommands.
func Noun(use, short string, verbs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short,
		Args: onlyVerbs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(verbs...)
	return c
}

// onlyVerbs rejects a word that is not a subcommand.
func onlyVerbs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return unknownVerb(c, args[0])
}

// Synonyms maps subcommands of other programs to the corresponding Bourse commands. The outer key
// is the Bourse command before the unknown word; "" stands for the program itself.
var Synonyms = map[string]map[string]string{
	"": {
		"ps": "machine list", "ls": "machine list", "list": "machine list", "jobs": "machine list",
		"run": "machine run", "create": "machine run",
		"apply": "deploy", "launch": "deploy", "rollout": "deploy", "revert": "rollback", "undo": "rollback", "history": "releases",
		"show": "machine status", "inspect": "machine status", "log": "logs",
		"exec": "machine exec", "ssh": "machine exec", "console": "machine exec", "attach": "logs",
		"start": "machine start", "stop": "machine stop", "restart": "machine restart", "wait": "machine wait",
		"kill": "machine signal", "signal": "machine signal",
		"rm": "machine destroy", "delete": "machine destroy", "destroy": "machine destroy",
		"top": "machine stats", "stats": "machine stats",
		"forward": "machine forward", "port-forward": "machine forward",
		"pull": "image pull", "nodes": "worker list", "node": "worker list", "hosts": "worker list", "members": "worker list",
		"health": "view health", "query": "sql", "server": "serve", "agent": "serve worker", "up": "dev",
	},
	"machine": {
		"create": "run", "inspect": "status", "log": "logs", "ssh": "exec", "console": "exec",
		"kill": "signal", "remove": "destroy", "top": "stats", "proxy": "forward", "port-forward": "forward",
	},
	"worker": {"status": "show", "ps": "list"},
}

// unknownVerb returns the error for a word that is not a subcommand of c, with a
// suggestion.
func unknownVerb(c *cobra.Command, word string) error {
	text := "unknown command " + bourse.Quoted(word) + " for " + bourse.Quoted(c.CommandPath())
	if !c.HasParent() {
		text = "unknown command " + bourse.Quoted(word)
	}
	hint := c.CommandPath() + " --help"
	word = strings.ToLower(word)
	if command := synonymOf(c, word); command != "" {
		hint = c.CommandPath() + " " + command
	} else if command := synonymOf(c.Root(), word); command != "" {
		hint = c.Root().CommandPath() + " " + command
	}
	return Hint(bourse.Errorf(bourse.CodeInvalid, "%s", text), hint)
}

// synonymOf returns the subcommand of c that the user probably meant by word, or "" if there is none.
func synonymOf(c *cobra.Command, word string) string {
	noun := ""
	if c.HasParent() {
		noun = c.Name()
	}
	if command := Synonyms[noun][word]; command != "" {
		return command
	}
	c.SuggestionsMinimumDistance = maxEditDistance
	return Nearest(word, c.SuggestionsFor(word))
}

// maxEditDistance is the maximum edit distance between a misspelled word and a suggestion.
const maxEditDistance = 2

// Nearest returns the word in list that is most similar to word, or "" if none is similar
// enough.
func Nearest(word string, list []string) string {
	best, least := "", maxEditDistance+1
	for _, other := range list {
		n := editDistance(word, other)
		if strings.HasPrefix(other, word) {
			n = min(n, 1)
		}
		if n < least && word != "" && (n < len(word) || n == 1) {
			best, least = other, n
		}
	}
	return best
}

// editDistance returns the Levenshtein distance between two words.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// flagError returns the error for an unknown flag. If the flag follows a word that is not a
// subcommand, the error is about the word instead.
func (s *Shell) flagError(c *cobra.Command, err error) error {
	depth := 0
	for p := c; p.HasParent(); p = p.Parent() {
		depth++
	}
	if c.HasSubCommands() && len(s.Args) > depth && !strings.HasPrefix(s.Args[depth], "-") {
		return unknownVerb(c, s.Args[depth])
	}
	if strings.Contains(c.Use, "-- COMMAND") {
		return Hint(bourse.Errorf(bourse.CodeInvalid, "%w", err), "the command's own flags after --", c.CommandPath()+" --help")
	}
	return err
}
